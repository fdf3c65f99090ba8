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

// ErrChanged is returned by Store.SaveHooks if another process changed the state. Load it and try
// again.
var ErrChanged = errors.New("another process changed the state of the hooks")

// Store is the access to the deployment's record and to the delivery state.
type Store interface {
	// Watch delivers the present record and the newest one after each change. It may skip
	// intermediate ones.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	// BlockedBy counts the parked, not waived groups in the direction of the present sync.
	BlockedBy(ctx context.Context, d upgradestate.Deployment) (direction string, count int64, err error)
	// LoadHooks returns the state and its revision; zero values if there is none.
	LoadHooks(ctx context.Context) (s State, revision int64, err error)
	// SaveHooks stores the state if the stored one still has that revision, and returns the new
	// revision. Otherwise it returns ErrChanged.
	SaveHooks(ctx context.Context, s State, revision int64) (int64, error)
	// ForgetHooks deletes the state.
	ForgetHooks(ctx context.Context) error
}

// Sender delivers an event. A nil error means that the receiver has acknowledged it. Send must
// return when ctx ends.
type Sender interface {
	Send(ctx context.Context, e Event, body []byte) error
}

// Hook is one receiver of events.
type Hook struct {
	Name    string
	Events  []Type        // wanted types; empty: all
	Timeout time.Duration // of one attempt
	GiveUp  time.Duration // age at which an undelivered event is dropped
	Sender  Sender
}

func (h Hook) wants(t Type) bool { return len(h.Events) == 0 || slices.Contains(h.Events, t) }

// Hooks are the hooks of one deployment. The leading process calls Run.
type Hooks struct {
	hooks []Hook
	store Store
	log   *zap.Logger
	stats []stats

	changing sync.Mutex // held during a change of the state; taken before mu
	mu       sync.Mutex
	state    State
	revision int64
	leads    bool
	changed  chan struct{} // closed and replaced by each new state
}

type stats struct{ delivered, failures, givenUp atomic.Int64 }

// Stats are the counters of a hook.
type Stats struct {
	Name        string
	Undelivered int64 // waiting events; -1: only the leader knows
	// Counters of this process: successful and failed attempts, and dropped events.
	Delivered, Failures, GivenUp int64
}

// New returns the hooks of a deployment.
func New(hooks []Hook, store Store, log *zap.Logger) *Hooks {
	return &Hooks{hooks: hooks, store: store, log: log, stats: make([]stats, len(hooks)), changed: make(chan struct{})}
}

// Stats returns the counters of each hook. It may be called concurrently with Run.
func (h *Hooks) Stats() []Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Stats
	for i, hook := range h.hooks {
		st := Stats{Name: hook.Name, Undelivered: -1, Delivered: h.stats[i].delivered.Load(),
			Failures: h.stats[i].failures.Load(), GivenUp: h.stats[i].givenUp.Load()}
		if h.leads {
			// Only the leader has the present state; any other process would report an old one.
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

// lookParked is the interval for counting parked groups.
const lookParked = 10 * time.Second

// Run delivers events until ctx ends, and returns ctx's error. A failing hook does not end it.
func (h *Hooks) Run(ctx context.Context) error {
	if len(h.hooks) == 0 {
		return h.forget(ctx)
	}
	// The new leader continues from the stored state, not from its own memory of it.
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

// forget deletes the delivery state when no hook is configured. A hook configured later then
// receives no old events.
func (h *Hooks) forget(ctx context.Context) error {
	if err := h.persist(ctx, "delete the state of the hooks", func() error { return h.store.ForgetHooks(ctx) }); err != nil {
		return err
	}
	// Keep leading: returning would look like a failure.
	<-ctx.Done()
	return ctx.Err()
}

func (h *Hooks) setLeads(leads bool) {
	h.mu.Lock()
	h.leads = leads
	h.mu.Unlock()
}

// persist repeats a store operation until it succeeds or ctx ends.
func (h *Hooks) persist(ctx context.Context, what string, f func() error) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	said := false
	return backoff.Retry(func() error {
		err := f()
		if err != nil && ctx.Err() != nil {
			return backoff.Permanent(ctx.Err())
		}
		// ErrChanged is expected; log another failure only once.
		if err != nil && !errors.Is(err, ErrChanged) && !said {
			said = true
			h.log.Warn("a store operation of the hooks failed and will be retried", zap.String("what", what), zap.Error(err))
		}
		return err
	}, backoff.WithContext(policy, ctx))
}

func (h *Hooks) load(ctx context.Context) error {
	names := make([]string, 0, len(h.hooks))
	for _, hook := range h.hooks {
		names = append(names, hook.Name)
	}
	return h.persist(ctx, "cannot load the state of the hooks", func() error {
		s, revision, err := h.store.LoadHooks(ctx)
		if err != nil {
			return err
		}
		// Retried, not fatal: a newer binary may take over.
		if s.Format > Format {
			return fmt.Errorf("it has format %d, but this binary knows %d: use a newer binary", s.Format, Format)
		}
		s.Format = Format
		s.configure(names)
		h.take(s, revision)
		return nil
	})
}

// take makes a state the present one and wakes the deliveries.
func (h *Hooks) take(s State, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.revision, h.leads = s, revision, true
	close(h.changed)
	h.changed = make(chan struct{})
}

// change applies a change to the state and stores it if apply returns true. It repeats apply with
// the stored state if another process, which takes itself for the leader, has changed that.
func (h *Hooks) change(ctx context.Context, what string, apply func(*State) bool) error {
	return h.persist(ctx, what, func() error {
		// Hold the lock from reading the state until taking the new one. Otherwise a slow change
		// would restore an old state.
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

// sayLeftOut counts and logs the wanted events that hooks lost because too many were waiting.
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
			h.log.Error("too many events wait for a hook; the oldest are dropped", zap.String("hook", hook.Name), zap.Int("kept", maxQueue), zap.Strings("ids", lost))
		}
	}
}

// make creates events from the records that it receives and from the number of parked groups.
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
			err := h.change(ctx, "record events", func(s *State) bool {
				first := s.Revision == 0
				before = s.Sequence
				entries := s.Entries
				s.follow(d)
				// Store the first record even without events: it is where the history starts to
				// count.
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
				continue // counted again later; the store's users log the error
			}
			err = h.change(ctx, "record parked records", func(s *State) bool { return s.park(latest, direction, count, time.Now()) })
			if err != nil {
				return err
			}
		}
	}
}

// Bounds of the pause between two attempts.
const (
	againFirst = time.Second
	againMost  = 5 * time.Minute
)

// deliver sends one hook its events, one after another.
func (h *Hooks) deliver(ctx context.Context, i int) error {
	hook, st := h.hooks[i], &h.stats[i]
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(againFirst), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(againMost), backoff.WithMaxElapsedTime(0))
	failing := int64(0) // event with a logged failure
	sent := int64(0)    // last event sent here, even if not stored yet
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
		// Drop the event, so that the later ones get through.
		case age(*e) >= hook.GiveUp:
			st.failures.Add(1)
			st.givenUp.Add(1)
			h.log.Error("a hook does not accept an event; the event is dropped", zap.String("hook", hook.Name), zap.String("event", string(e.Type)),
				zap.String("id", e.ID), zap.Error(err))
		default:
			st.failures.Add(1)
			if failing != e.Sequence {
				failing = e.Sequence
				h.log.Warn("a hook does not accept an event; the delivery is retried", zap.String("hook", hook.Name), zap.String("event", string(e.Type)),
					zap.String("id", e.ID), zap.Error(err))
			}
			// Later events wait as well: the hook relies on their order.
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait.NextBackOff()):
			}
			continue
		}
		wait.Reset()
		// Remember the delivery here as well: another one must not repeat it if the store fails
		// now.
		sent = e.Sequence
		err = h.change(ctx, "record deliveries", func(s *State) bool {
			// The hook may be gone from the state, or another process was faster.
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

// next returns the first event that a hook wants and has not received; nil if there is none until
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

// send makes one attempt.
func (h *Hooks) send(ctx context.Context, hook Hook, e Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hook.Timeout, fmt.Errorf("no answer within %s", hook.Timeout))
	defer cancel()
	err = hook.Sender.Send(ctx, e, body)
	// The cause explains the timeout; the sender's own error would only show the end of ctx.
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// age returns the age of an event. An event without a readable time counts as very old.
func age(e Event) time.Duration {
	at, err := time.Parse(time.RFC3339, e.At)
	if err != nil {
		return time.Duration(1<<63 - 1)
	}
	return time.Since(at)
}
