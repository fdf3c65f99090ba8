package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/program/adminport"
	"dbcontroller.dev/refusal"
)

// Connect connects to the coordination store. The server calls it when it begins to run, and end when
// it has ended.
type Connect func(ctx context.Context) (store coord.Store, end func(), err error)

// Connected returns a Connect for a store that the caller closes.
func Connected(store coord.Store) Connect {
	return func(context.Context) (coord.Store, func(), error) { return store, func() {}, nil }
}

// ErrRan reports a second run of a server.
var ErrRan = errors.New("a server runs once: make a new one")

// Reasons of a handler outside of Run.
var (
	errNotRunning = refusal.Because(refusal.NotReady, "the server does not run yet; call again", nil)
	errStopped    = refusal.Because(refusal.Stopping, "server stops; call again", nil)
)

// life is the time of a server from New to the end of its run, and the requests that its Handler
// answers in it.
type life struct {
	closing chan struct{} // closed by the first Close
	cut     chan struct{} // closed when a Close has no more time
	ended   chan struct{} // closed at the end of the run

	mu      sync.Mutex
	begun   bool         // the run has begun, or never will
	ran     bool         // Run was called
	api     http.Handler // of the run; nil: none
	stopped bool         // Handler refuses all requests
	running int          // requests in Handler
	idle    chan struct{}
}

func newLife() life {
	return life{closing: make(chan struct{}), cut: make(chan struct{}), ended: make(chan struct{}), idle: make(chan struct{})}
}

// Run serves what comes to Handler and Operator until ctx ends or Close is called. It returns nil
// after that, once the requests have finished, at most limits.StopTime after ctx or as long as Close
// waits.
func (a *App) Run(ctx context.Context, connect Connect) error {
	return a.once(ctx, connect, func(ctx context.Context, store coord.Store) error {
		a.log.Info("server runs")
		return a.run(ctx, store, a.warnings, func(ctx context.Context, h http.Handler) error {
			a.mu.Lock()
			a.api = h
			a.mu.Unlock()
			<-ctx.Done()
			a.refuse()
			a.drain()
			return ctx.Err()
		})
	})
}

// once connects and calls run, the first time that it is called. The ctx of run ends with Close, too.
func (a *App) once(ctx context.Context, connect Connect, run func(context.Context, coord.Store) error) error {
	a.mu.Lock()
	again, closed := a.ran, a.begun
	a.begun, a.ran = true, true
	a.mu.Unlock()
	switch {
	case again:
		return ErrRan
	case closed: // a program may be told to stop before this call
		return nil
	}
	defer close(a.ended)
	defer a.refuse()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	store, end, err := connect(ctx)
	if err != nil {
		// Without a connection there is nothing to end in order.
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer end()
	return run(ctx, store)
}

// Close refuses further requests, and ends streams. It lets running requests finish, then ends Run
// and waits for it. When ctx ends before, Close lets Run end at once, without these requests, and
// returns ctx's error.
func (a *App) Close(ctx context.Context) error {
	a.refuse()
	a.mu.Lock()
	begun := a.begun
	a.begun = true // Run must not begin any more
	select {
	case <-a.closing:
	default:
		close(a.closing)
		if !begun {
			close(a.ended)
		}
	}
	a.mu.Unlock()
	select {
	case <-a.ended:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.cut:
	default:
		close(a.cut)
	}
	return ctx.Err()
}

// Handler returns the API for an http.Server of the program, with all checks and limits that need no
// listener. Call it before Run.
func (a *App) Handler() (http.Handler, error) {
	cfg := a.door()
	cfg.What = "API"
	h, warnings, err := door.Handler(cfg, http.HandlerFunc(a.serve))
	a.warnings = append(a.warnings, warnings...)
	return h, err
}

// Operator returns the pages of the operator port for an http.Server of the program. Call it before
// Run.
func (a *App) Operator() (http.Handler, error) {
	cfg, content := a.operator()
	h, warnings, err := adminport.Handler(cfg, content)
	a.warnings = append(a.warnings, warnings...)
	return h, err
}

// TLS returns the configuration of the program's listeners, or nil if the configuration has no
// certificate.
func (a *App) TLS() *tls.Config {
	if a.lock.KeyPair == nil {
		return nil
	}
	return access.ServerTLS(a.lock.KeyPair, a.lock.Clients)
}

// serve answers a request while the server runs.
func (a *App) serve(w http.ResponseWriter, r *http.Request) {
	api, err := a.enter()
	if err != nil {
		w.Header().Set("Retry-After", "1")
		answer, _ := refusal.In(err)
		refusal.Write(w, r, answer)
		return
	}
	defer a.leave()
	api.ServeHTTP(w, r)
}

func (l *life) enter() (http.Handler, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopped:
		return nil, errStopped
	case l.api == nil:
		return nil, errNotRunning
	}
	l.running++
	return l.api, nil
}

func (l *life) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 && l.stopped {
		close(l.idle)
	}
}

// refuse makes Handler refuse requests from now on.
func (l *life) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped && l.running == 0 {
		close(l.idle)
	}
	l.stopped = true
}

// refuses reports whether Handler refuses all requests for good.
func (l *life) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// drain waits until no request runs. Close limits the time; without a Close, limits.StopTime does.
func (a *App) drain() {
	limit := time.NewTimer(limits.StopTime)
	defer limit.Stop()
	over, closing := limit.C, a.closing
	for {
		select {
		case <-a.idle:
			return
		case <-closing:
			over, closing = nil, nil
			continue
		case <-a.cut:
		case <-over:
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.log.Warn("the server ends, and requests still run", zap.Int("requests", a.running))
		return
	}
}
