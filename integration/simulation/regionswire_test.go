package simulation_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// wire is the network to a region, as an http.RoundTripper. While it is cut nothing passes. Both ends
// learn of that after pingLimit, or when it heals. In bad weather requests and answers are late or lost.
type wire struct {
	to      *place
	weather *weather // nil: always fine

	mu   sync.Mutex
	cut  chan struct{} // closed when it heals; nil: it works
	open map[*io.PipeReader]bool
}

// pingLimit is the time after which a server notices that a connection is dead.
const pingLimit = 10 * time.Second

var errLine = errors.New("the connection is broken")

// travel takes as long as a message does, or fails.
func (n *wire) travel(ctx context.Context) error {
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	if cut != nil {
		select {
		case <-cut:
		case <-time.After(pingLimit):
		case <-ctx.Done():
		}
		return errLine
	}
	if n.weather == nil || !n.weather.bad.Load() {
		return nil
	}
	switch roll := n.weather.roll(100); {
	case roll < 2:
		n.weather.fired.Add(1)
		return errLine
	case roll < 20:
		select {
		case <-time.After(time.Duration(n.weather.roll(50)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// RoundTrip has the region's server answer. A server that is killed breaks its connections.
func (n *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req.Body = http.NoBody
	}
	err := n.travel(req.Context())
	n.to.mu.Lock()
	api, alive := n.to.api, n.to.alive
	n.to.mu.Unlock()
	if err == nil && api == nil {
		err = errLine
	}
	if err != nil {
		_ = req.Body.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(req.Context())
	unlink := context.AfterFunc(alive, cancel)
	r, w := io.Pipe()
	a := &answer{header: http.Header{}, began: make(chan struct{}), body: w}
	n.hold(r)
	go func() {
		defer unlink()
		defer cancel()
		defer n.release(r)
		defer req.Body.Close()
		api.ServeHTTP(a, req.WithContext(ctx))
		a.WriteHeader(http.StatusOK)
		if alive.Err() != nil {
			_ = w.CloseWithError(errLine)
			return
		}
		_ = w.Close()
	}()
	select {
	case <-a.began:
		err = n.travel(req.Context())
	case <-ctx.Done():
		err = errLine
	}
	if err != nil {
		cancel()
		_ = r.CloseWithError(err)
		return nil, err
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/2.0", ProtoMajor: 2, Header: a.sent, Body: &answerBody{n, req.Context(), r, cancel}, ContentLength: -1, Request: req}, nil
}

func (n *wire) hold(r *io.PipeReader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open == nil {
		n.open = map[*io.PipeReader]bool{}
	}
	n.open[r] = true
}

func (n *wire) release(r *io.PipeReader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, r)
}

// sever cuts the wire.
func (n *wire) sever() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut != nil {
		return
	}
	cut := make(chan struct{})
	n.cut = cut
	time.AfterFunc(pingLimit, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.cut == cut {
			n.breakAll()
		}
	})
}

// heal ends a cut. Connections of before are broken.
func (n *wire) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut != nil {
		close(n.cut)
		n.cut = nil
		n.breakAll()
	}
}

func (n *wire) breakAll() {
	for r := range n.open {
		_ = r.CloseWithError(errLine)
	}
}

// answer is the http.ResponseWriter at the far end.
type answer struct {
	header, sent http.Header
	status       int
	began        chan struct{}
	once         sync.Once
	body         *io.PipeWriter
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.began)
	})
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// answerBody is what arrives of an answer.
type answerBody struct {
	n      *wire
	ctx    context.Context
	r      *io.PipeReader
	cancel func()
}

func (b *answerBody) Read(into []byte) (int, error) {
	read, err := b.r.Read(into)
	if err != nil {
		return 0, err
	}
	if err := b.n.travel(b.ctx); err != nil {
		_ = b.r.CloseWithError(err)
		return 0, err
	}
	return read, nil
}

func (b *answerBody) Close() error {
	b.cancel()
	return b.r.Close()
}
