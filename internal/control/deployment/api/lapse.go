package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
)

// When an application dies, its connections close. A broken call for its location shows this at
// once. The registration would show it only after its time, and each switch until then would wait
// for the application in vain.

// lapseAfter is how long a client with a broken call may take to call again, at any controller.
const lapseAfter = time.Second

// calls counts the calls of clients at this process, while something waits for them.
type calls struct {
	mu    sync.Mutex
	byKey map[string]*called
}

type called struct {
	calls   int // in all
	waiting int // under way and not broken
	watched int // number of users; at 0 the entry is deleted
}

// note counts a call.
func (c *calls) note(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Nobody waits for the calls of other clients.
	if one := c.byKey[key]; one != nil {
		one.calls++
	}
}

// begin counts a call that waits.
func (c *calls) begin(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byKey[key]
	if one == nil {
		if c.byKey == nil {
			c.byKey = map[string]*called{}
		}
		one = &called{}
		c.byKey[key] = one
	}
	one.calls++
	one.waiting++
	one.watched++
}

// broken records that a waiting call has ended. alive then reports whether the client has called
// since, or waits in another call.
func (c *calls) broken(key string) (alive func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byKey[key]
	one.waiting--
	before := one.calls
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return one.calls > before || one.waiting > 0
	}
}

// end releases the entry of a call, after broken.
func (c *calls) end(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byKey[key]
	if one.watched--; one.watched == 0 {
		delete(c.byKey, key)
	}
}

// whileCalled runs do for a registered client. If the call breaks off and the client does not call
// again, it ends the registration. It does so only for a registration that the same caller made at
// this controller: others with the id must not end it without a line in the audit. A client that
// moved to another controller has a lease of that controller, and keeps its registration.
func (v *Service) whileCalled(ctx context.Context, s *deployment.Store, id string, do func() error) error {
	key := s.Name() + "/" + id
	v.clients.calls.begin(key)
	defer v.clients.calls.end(key)
	// Even if the call has broken off already: the process may have died right after the call.
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	lease, err := s.RegisteredUnder(short, id)
	cancel()
	unregistered := errors.Is(err, deployment.ErrNotRegistered) // it learns this when it registers
	// A client without a registration still gets its answer.
	if err == nil || unregistered {
		err = do()
	}
	alive := v.clients.calls.broken(key)
	// A client that ended its call normally is alive.
	if errors.Is(ctx.Err(), context.Canceled) && !unregistered && lease != 0 {
		v.lapse(context.WithoutCancel(ctx), s, id, lease, alive)
	}
	return err
}

// lapse ends the registration of a client with a broken call, unless it calls again.
func (v *Service) lapse(ctx context.Context, s *deployment.Store, id string, lease coord.LeaseID, alive func() bool) {
	timer := time.NewTimer(lapseAfter)
	defer timer.Stop()
	select {
	case <-v.stopping: // a stopping controller breaks calls itself: its clients move on
		return
	case <-replaced(ctx): // this Service would not notice the client's next call
		return
	case <-timer.C:
	}
	if alive() || !v.holds(ctx, s.Name()+"/"+id, lease) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := s.Deregister(ctx, id, lease); err != nil {
		v.cfg.Log.Info("registration of a client that is gone ends with its lease", zap.String("client", id), zap.Error(err))
	}
}

// holds reports whether the caller registered a client at this process, with a lease.
func (v *Service) holds(ctx context.Context, key string, lease coord.LeaseID) bool {
	v.clients.mu.Lock()
	c := v.clients.byKey[key]
	v.clients.mu.Unlock()
	if c == nil {
		return false
	}
	caller, _ := access.CallerOf(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by == caller.Name && c.lease != nil && c.lease.ID() == lease
}
