// Package outbound makes the calls of the sample BBS to others: to the callbacks of tasks, and to
// the stop endpoints of cells. The addresses come from clients, so each call is bounded: http and
// https only, no redirects, no proxy of the environment, limits of time, of bytes of the answer, and
// of calls at the same time. Errors never quote an address, which may hold a password.
//
// A call that is not made, or whose answer is lost, is no error of the BBS. Callbacks are repeated,
// and cells find out by themselves. Begin to read at Calls and Post.
//
// It is not for users and may change with any version.
package outbound

import (
	"context"
	"sync"
)

// Calls runs a bounded number of calls, each in a goroutine. Its methods may be called concurrently.
type Calls struct {
	ctx  context.Context //nolint:containedctx // of the controller's run, which all calls end with
	most int

	mu      sync.Mutex
	running map[string]bool
	all     sync.WaitGroup
}

// NewCalls returns Calls that runs at most most calls at a time. They end with ctx.
func NewCalls(ctx context.Context, most int) *Calls {
	return &Calls{ctx: ctx, most: most, running: map[string]bool{}}
}

// Go starts a call. It does not start one while another one of the same key runs, or if too many
// run: the caller asks again later.
func (c *Calls) Go(key string, call func(ctx context.Context)) (started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[key] || len(c.running) >= c.most || c.ctx.Err() != nil {
		return false
	}
	c.running[key] = true
	c.all.Go(func() {
		call(c.ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, key)
	})
	return true
}

// Wait waits until all calls have ended. The caller has ended their context, or they end by their
// own limits.
func (c *Calls) Wait() { c.all.Wait() }
