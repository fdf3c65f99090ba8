package overetcd_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy forwards connections to etcd. It can swallow the answers of etcd, so that a request goes
// through and its answer is lost. It can also break all connections, and let new ones wait.
type proxy struct {
	listener net.Listener
	network  string
	target   string       // etcd's address in network
	open     sync.RWMutex // locked while connections wait

	mu      sync.Mutex
	deaf    bool
	links   map[net.Conn]bool
	running sync.WaitGroup
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, network: "tcp", target: strings.TrimPrefix(target, "http://"), links: map[net.Conn]bool{}}
	if path, ok := strings.CutPrefix(target, "unix://"); ok {
		p.network, p.target = "unix", path
	}
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
		p.link(in)
	}
}

func (p *proxy) link(in net.Conn) {
	p.open.RLock()
	defer p.open.RUnlock()
	out, err := net.Dial(p.network, p.target)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	p.links[in], p.links[out] = true, true
	p.mu.Unlock()
	p.running.Add(2)
	go p.forward(out, in, false)
	go p.forward(in, out, true)
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

// hold breaks all connections, and lets new ones wait for release. release may run more than once.
func (p *proxy) hold() (release func()) {
	p.open.Lock()
	p.cut()
	return sync.OnceFunc(p.open.Unlock)
}
