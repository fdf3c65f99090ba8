package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/upgradestate"
)

// ErrChanged is what Store.SaveHooks returns where the state is another one by now.
var ErrChanged = errors.New("the state of the hooks was changed by another process")

// Store is what this package needs of the deployment.
type Store interface {
	// Watch delivers the newest record whenever it changed; intermediate ones may be skipped.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	// BlockedBy counts what is parked and not waived where the record is synced to now.
	BlockedBy(ctx context.Context, d upgradestate.Deployment) (direction string, count int64, err error)
	// LoadHooks returns the state and its revision; zero values: there is none.
	LoadHooks(ctx context.Context) (s State, revision int64, err error)
	// SaveHooks stores it if it still has that revision, and returns the new one; else ErrChanged.
	SaveHooks(ctx context.Context, s State, revision int64) (int64, error)
	// ForgetHooks removes the state.
	ForgetHooks(ctx context.Context) error
}

// Sender takes an event to where it is to be known. nil is that it arrived.
type Sender interface {
	Send(ctx context.Context, e Event, body []byte) error
}

// Hook is one that is told.
type Hook struct {
	Name    string
	Events  []Type        // that it wants; empty: all
	Timeout time.Duration // of one attempt
	GiveUp  time.Duration // after which an event that does not arrive is left out
	Sender  Sender
}

func (h Hook) wants(t Type) bool { return len(h.Events) == 0 || slices.Contains(h.Events, t) }

// Hooks are those of one deployment. Run is called whenever this process leads.
type Hooks struct {
	hooks []Hook
	store Store
	log   *zap.Logger
	stats []stats

	changing sync.Mutex // held while the state is changed, before mu
	mu       sync.Mutex
	state    State
	revision int64
	leads    bool
	changed  chan struct{} // closed and replaced when state changed
}

type stats struct{ delivered, failures, givenUp atomic.Int64 }

// Stats is how a hook does.
type Stats struct {
	Name        string
	Undelivered int64 // events that it waits for; -1: another process knows
	// Of this process: attempts that succeeded and that failed, and events that were left out.
	Delivered, Failures, GivenUp int64
}

// New makes the hooks of a deployment.
func New(hooks []Hook, store Store, log *zap.Logger) *Hooks {
	return &Hooks{hooks: hooks, store: store, log: log, stats: make([]stats, len(hooks)), changed: make(chan struct{})}
}

// Stats returns how each hook does.
func (h *Hooks) Stats() []Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Stats
	for i, hook := range h.hooks {
		st := Stats{Name: hook.Name, Undelivered: -1, Delivered: h.stats[i].delivered.Load(),
			Failures: h.stats[i].failures.Load(), GivenUp: h.stats[i].givenUp.Load()}
		if h.leads {
			st.Undelivered = 0
			for _, e := range h.state.Queue {
				if e.Sequence > h.state.Done[hook.Name] && hook.wants(e.Type) {
					st.Undelivered++
				}
			}
		}
		all = append(all, st)
	}
	return all
}

// lookParked is how often what is parked is counted.
const lookParked = 10 * time.Second

// Run tells the hooks until ctx ends, which is all that it returns. Nothing that a hook does
// ends it.
func (h *Hooks) Run(ctx context.Context) error {
	if len(h.hooks) == 0 {
		return h.forget(ctx)
	}
	if err := h.load(ctx); err != nil {
		return err
	}
	defer h.setLeads(false)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.make(ctx) })
	for i := range h.hooks {
		g.Go(func() error { return h.deliver(ctx, i) })
	}
	return g.Wait()
}

// forget takes the state away where nobody is to be told any longer: a hook that is configured
// in a year is not told of what happened meanwhile.
func (h *Hooks) forget(ctx context.Context) error {
	if err := h.persist(ctx, "forget hooks", func() error { return h.store.ForgetHooks(ctx) }); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *Hooks) setLeads(leads bool) {
	h.mu.Lock()
	h.leads = leads
	h.mu.Unlock()
}

// persist repeats what is done with the store until it succeeds.
func (h *Hooks) persist(ctx context.Context, what string, f func() error) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	said := false
	return backoff.Retry(func() error {
		err := f()
		if err != nil && ctx.Err() != nil {
			return backoff.Permanent(ctx.Err())
		}
		if err != nil && !errors.Is(err, ErrChanged) && !said {
			said = true
			h.log.Warn("will be tried again", zap.String("what", what), zap.Error(err))
		}
		return err
	}, backoff.WithContext(policy, ctx))
}

func (h *Hooks) load(ctx context.Context) error {
	names := make([]string, 0, len(h.hooks))
	for _, hook := range h.hooks {
		names = append(names, hook.Name)
	}
	return h.persist(ctx, "load the state of the hooks", func() error {
		s, revision, err := h.store.LoadHooks(ctx)
		if err != nil {
			return err
		}
		if s.Format > Format {
			return fmt.Errorf("it has format %d, and this binary knows %d: use a newer one", s.Format, Format)
		}
		s.Format = Format
		s.configure(names)
		h.take(s, revision)
		return nil
	})
}

// take makes a state the present one.
func (h *Hooks) take(s State, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.revision, h.leads = s, revision, true
	close(h.changed)
	h.changed = make(chan struct{})
}

// change applies a change to the state, and stores it where it reports that there is one. It
// may be called again with a state that another process, which takes itself for the leader,
// has stored meanwhile.
func (h *Hooks) change(ctx context.Context, what string, apply func(*State) bool) error {
	return h.persist(ctx, what, func() error {
		// From reading the state to taking the new one, or a late one would be put back.
		h.changing.Lock()
		defer h.changing.Unlock()
		h.mu.Lock()
		s, revision := h.state.clone(), h.revision
		h.mu.Unlock()
		if !apply(&s) {
			return nil
		}
		for _, hook := range h.hooks {
			s.skip(hook.Name, hook.wants)
		}
		leftOut := s.trim()
		saved, err := h.store.SaveHooks(ctx, s, revision)
		if errors.Is(err, ErrChanged) {
			if loaded := h.load(ctx); loaded != nil {
				return loaded
			}
			return err
		}
		if err == nil {
			h.take(s, saved)
			h.sayLeftOut(s, leftOut)
		}
		return err
	})
}

// sayLeftOut counts the events that hooks wanted, and were not told of because too many waited.
func (h *Hooks) sayLeftOut(s State, leftOut []Event) {
	for i, hook := range h.hooks {
		var lost []string
		for _, e := range leftOut {
			if e.Sequence > s.Done[hook.Name] && hook.wants(e.Type) {
				lost = append(lost, e.ID)
			}
		}
		if len(lost) > 0 {
			h.stats[i].givenUp.Add(int64(len(lost)))
			h.log.Error("too many events wait for a hook; the oldest are left out", zap.String("hook", hook.Name), zap.Int("kept", maxQueue), zap.Strings("ids", lost))
		}
	}
}

// make makes events of the records that it sees, and of what is parked.
func (h *Hooks) make(ctx context.Context) error {
	look := time.NewTicker(lookParked)
	defer look.Stop()
	var latest upgradestate.Deployment
	watch := h.store.Watch(ctx)
	for {
		select {
		case d, open := <-watch:
			if !open {
				return ctx.Err()
			}
			latest = d
			before := int64(0)
			err := h.change(ctx, "note what happened", func(s *State) bool {
				first := s.Revision == 0
				before = s.Sequence
				entries := s.Entries
				s.follow(d)
				return first || s.Sequence != before || s.Entries != entries
			})
			if err != nil {
				return err
			}
		case <-look.C:
			if latest.Name == "" {
				continue
			}
			direction, count, err := h.store.BlockedBy(ctx, latest)
			if err != nil {
				continue // it is looked at again; who cannot work without says so
			}
			err = h.change(ctx, "note what is parked", func(s *State) bool { return s.park(latest, direction, count, time.Now()) })
			if err != nil {
				return err
			}
		}
	}
}

// Bounds of the time between two attempts.
const (
	againFirst = time.Second
	againMost  = 5 * time.Minute
)

// deliver tells one hook what it wants to know, one event after the other.
func (h *Hooks) deliver(ctx context.Context, i int) error {
	hook, st := h.hooks[i], &h.stats[i]
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(againFirst), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(againMost), backoff.WithMaxElapsedTime(0))
	failing := int64(0) // the event whose failure was logged
	sent := int64(0)    // what was told here, also where the store does not know it yet
	for {
		e, changed := h.next(hook, sent)
		if e == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
			continue
		}
		err := h.send(ctx, hook, *e)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err == nil:
			st.delivered.Add(1)
		case age(*e) >= hook.GiveUp:
			st.failures.Add(1)
			st.givenUp.Add(1)
			h.log.Error("a hook does not take an event, which is left out", zap.String("hook", hook.Name), zap.String("event", string(e.Type)),
				zap.String("id", e.ID), zap.Error(err))
		default:
			st.failures.Add(1)
			if failing != e.Sequence {
				failing = e.Sequence
				h.log.Warn("a hook does not take an event; it is tried again", zap.String("hook", hook.Name), zap.String("event", string(e.Type)),
					zap.String("id", e.ID), zap.Error(err))
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait.NextBackOff()):
			}
			continue
		}
		wait.Reset()
		sent = e.Sequence
		err = h.change(ctx, "note what a hook was told", func(s *State) bool {
			_, known := s.Done[hook.Name]
			later := known && s.Done[hook.Name] < e.Sequence
			if later {
				s.Done[hook.Name] = e.Sequence
			}
			return later
		})
		if err != nil {
			return err
		}
	}
}

// next is the first event that a hook wants and was not told of; nil: there is none until
// changed is closed.
func (h *Hooks) next(hook Hook, sent int64) (e *Event, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.state.Queue {
		if e.Sequence > max(sent, h.state.Done[hook.Name]) && hook.wants(e.Type) {
			return &e, nil
		}
	}
	return nil, h.changed
}

// send is one attempt.
func (h *Hooks) send(ctx context.Context, hook Hook, e Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hook.Timeout, fmt.Errorf("no answer within %s", hook.Timeout))
	defer cancel()
	err = hook.Sender.Send(ctx, e, body)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// age is how old an event is; one without a time is old.
func age(e Event) time.Duration {
	at, err := time.Parse(time.RFC3339, e.At)
	if err != nil {
		return time.Duration(1<<63 - 1)
	}
	return time.Since(at)
}
