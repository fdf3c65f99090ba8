package overetcd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// proxy forwards connections to etcd and can swallow what etcd answers, so that a
// request goes through and its answer is lost.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	deaf    bool
	links   map[net.Conn]bool
	running sync.WaitGroup
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: strings.TrimPrefix(target, "http://"), links: map[net.Conn]bool{}}
	p.running.Add(1)
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) accept() {
	defer p.running.Done()
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.links[in], p.links[out] = true, true
		p.mu.Unlock()
		p.running.Add(2)
		go p.forward(out, in, false)
		go p.forward(in, out, true)
	}
}

func (p *proxy) forward(to, from net.Conn, answers bool) {
	defer p.running.Done()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		swallow := answers && p.deaf
		p.mu.Unlock()
		if swallow {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}

func (p *proxy) setDeaf(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = deaf
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.links {
		c.Close()
	}
	clear(p.links)
}

// A commit whose answer is lost with the connection has an unknown outcome, happened
// once, and is not sent again.
func TestConnectionBreaksAfterSending(t *testing.T) {
	at := "http://" + startPlain(t)
	p := startProxy(t, at)
	ctx := t.Context()
	direct := open(t, etcdcoord.Config{Endpoints: []string{at}})
	s := open(t, etcdcoord.Config{Endpoints: []string{"http://" + p.listener.Addr().String()}})
	w, err := direct.Watch(ctx, "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	p.setDeaf(true)
	result := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, []coord.Condition{{Key: "k"}}, []coord.Op{{Key: "k"}})
		result <- err
	}()
	if _, err := w.Next(ctx); err != nil { // it happened
		t.Fatal(err)
	}
	p.setDeaf(false)
	p.cut()
	if err := <-result; !errors.Is(err, coord.ErrUnknown) || errors.Is(err, coord.ErrConflict) {
		t.Fatalf("Commit = %v, want ErrUnknown", err)
	}
	// The store works again, and reading resolves it.
	if _, err := s.Get(ctx, "k"); err != nil {
		t.Fatal(err)
	}
}

// The same with the context that ends while the answer is on its way.
func TestContextEndsAfterSending(t *testing.T) {
	at := "http://" + startPlain(t)
	p := startProxy(t, at)
	direct := open(t, etcdcoord.Config{Endpoints: []string{at}})
	s := open(t, etcdcoord.Config{Endpoints: []string{"http://" + p.listener.Addr().String()}})
	w, err := direct.Watch(t.Context(), "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p.setDeaf(true)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, []coord.Condition{{Key: "k"}}, []coord.Op{{Key: "k"}})
		result <- err
	}()
	_, err = w.Next(t.Context())
	cancel()
	if got := <-result; !errors.Is(got, coord.ErrUnknown) || !errors.Is(got, context.Canceled) {
		t.Fatalf("Commit = %v, want ErrUnknown and the context's error", got)
	}
	if err != nil {
		t.Fatalf("it did not go through: %v", err)
	}
}
