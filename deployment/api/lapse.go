package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/deployment"
)

// An application that dies takes its connections with it. The one in which it waits for news
// of its location tells of that at once, where its registration would tell only when its time
// is over, and each switch until then would wait for it in vain.

// lapseAfter is how long a client whose call broke off has to call again, at any controller.
const lapseAfter = time.Second

// calls knows what clients call at this process, while something waits to see it.
type calls struct {
	mu    sync.Mutex
	byKey map[string]*called
}

type called struct {
	calls   int // so far
	waiting int // that are under way and not broken off
	watched int // by so many; when there are none the entry goes
}

// note counts a call.
func (c *calls) note(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// broken says that a call which waited does so no longer, and returns how to tell whether the
// client has called since, or waits in another call.
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

// end forgets a call, after broken.
func (c *calls) end(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byKey[key]
	if one.watched--; one.watched == 0 {
		delete(c.byKey, key)
	}
}

// whileCalled does something for a registered client, and ends its registration if the client
// is gone before that is done. A client that has moved to another controller has its
// registration under a lease of that one, which stays.
func (v *Service) whileCalled(ctx context.Context, s *deployment.Store, id string, do func() error) error {
	key := s.Name() + "/" + id
	v.clients.calls.begin(key)
	defer v.clients.calls.end(key)
	// Even if the call has broken off by now: a process may die young.
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	lease, err := s.RegisteredUnder(short, id)
	cancel()
	unregistered := errors.Is(err, deployment.ErrNotRegistered) // it learns of that when it registers again
	if err == nil || unregistered {
		err = do()
	}
	alive := v.clients.calls.broken(key)
	if errors.Is(ctx.Err(), context.Canceled) && !unregistered && lease != 0 {
		v.lapse(context.WithoutCancel(ctx), s, id, lease, alive)
	}
	return err
}

// lapse ends the registration of a client whose call broke off, unless it calls again.
func (v *Service) lapse(ctx context.Context, s *deployment.Store, id string, lease coord.LeaseID, alive func() bool) {
	timer := time.NewTimer(lapseAfter)
	defer timer.Stop()
	select {
	case <-v.stopping: // who stops cannot tell: its clients go to another one
		return
	case <-timer.C:
	}
	if alive() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := s.Deregister(ctx, id, lease); err != nil {
		v.cfg.Log.Info("registration of a client that is gone ends with its lease", zap.String("client", id), zap.Error(err))
	}
}
