package vrunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
)

// hub reads the changes of one version with one stream while it has subscribers. It delivers to
// each subscriber the kinds that it asked for, and never waits for one.
type hub struct {
	watcher record.Watcher
	log     *slog.Logger

	mu      sync.Mutex
	subs    map[*subscription]struct{}
	kinds   map[string]bool    // kinds of the stream; grows while there are subscribers
	covered map[string]bool    // kinds whose later changes the position of the stream covers
	placed  bool               // the stream has a position, before all later changes
	failure error              // why the stream has no position or fails
	cancel  context.CancelFunc // ends the present stream; nil if there is none
	stopped bool
	news    chan struct{} // closed and replaced after each change of the fields above
}

func newHub(version string, w record.Watcher, log *slog.Logger) *hub {
	return &hub{
		watcher: w, log: log.With(slog.String("version", version)),
		subs: map[*subscription]struct{}{}, kinds: map[string]bool{}, news: make(chan struct{}),
	}
}

// subscribe adds a subscriber and waits until its stream has a position. If the stream already had
// one, it also waits until a stream with its kinds is open and admit has checked the database.
func (h *hub) subscribe(ctx context.Context, kinds []string) (*subscription, error) {
	c := &subscription{hub: h, kinds: slices.Clone(kinds), wake: make(chan struct{}, 1), held: memory.Of(ctx).Hold()}
	h.mu.Lock()
	h.subs[c] = struct{}{}
	grown := false
	for _, k := range kinds {
		grown = grown || !h.kinds[k]
		// The kinds grow only: to reopen the stream for each leaving subscriber would cost more.
		h.kinds[k] = true
	}
	if grown {
		// The stream must include the new kind. It reopens at its present position, and read drops
		// everything that arrives after this, so it still covers every later change of that kind.
		h.interrupt()
	}
	h.notify()
	h.mu.Unlock()
	for {
		h.mu.Lock()
		joined, stopped, news := c.joined, h.stopped, h.news
		h.mu.Unlock()
		switch {
		case stopped:
			return nil, errStopped
		case joined:
			return c, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			h.mu.Lock()
			failure := h.failure
			h.mu.Unlock()
			// A subscriber that gives up must leave, or the stream would stay open for it.
			h.leave(c)
			if failure != nil {
				return nil, fmt.Errorf("%w: %w", context.Cause(ctx), failure)
			}
			return nil, context.Cause(ctx)
		}
	}
}

func (h *hub) leave(c *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, c)
	c.held.Set(0)
	// Without subscribers the stream only loads the database.
	if len(h.subs) == 0 {
		h.interrupt()
	}
}

// interrupt ends the present stream. The caller holds h.mu.
func (h *hub) interrupt() {
	if h.cancel != nil {
		h.cancel()
	}
}

// notify wakes all waiters for news. The caller holds h.mu.
func (h *hub) notify() {
	close(h.news)
	h.news = make(chan struct{})
}

// run follows the changes while there are subscribers, until ctx ends.
func (h *hub) run(ctx context.Context) error {
	defer h.stop()
	for {
		h.mu.Lock()
		wanted, news := len(h.subs) > 0, h.news
		h.mu.Unlock()
		if wanted {
			h.follow(ctx)
		} else {
			select {
			case <-news:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// admit lets subscribers join a running stream. First the database must make something durable that
// is newer than the subscription. Then a later list includes everything that the stream has already
// delivered. Otherwise a deposed primary that does not know of its successor could answer with
// less. Subscribers that wait at the same time share one such check.
func (h *hub) admit(ctx context.Context) error {
	retry := newRetry()
	for ctx.Err() == nil {
		// The check counts only for subscribers that came before it, so they are collected first.
		waiting, news := h.waiting()
		if len(waiting) == 0 {
			select {
			case <-news:
			case <-ctx.Done():
			}
			continue
		}
		if _, err := h.watcher.Position(ctx); err != nil {
			h.mu.Lock()
			h.failure = err
			h.mu.Unlock()
			pause(ctx, retry.NextBackOff())
			continue
		}
		retry.Reset()
		h.mu.Lock()
		if h.placed { // otherwise place lets them join
			for _, c := range waiting {
				c.joined = true
			}
			h.notify()
		}
		h.mu.Unlock()
	}
	return ctx.Err()
}

func (h *hub) waiting() (subs []*subscription, news <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subs {
		if h.placed && !c.joined && h.covers(c) {
			subs = append(subs, c)
		}
	}
	return subs, h.news
}

// covers reports whether the stream's position covers all kinds of a subscriber. The caller holds
// h.mu.
func (h *hub) covers(c *subscription) bool {
	return !slices.ContainsFunc(c.kinds, func(kind string) bool { return !h.covered[kind] })
}

// cover notes the kinds of a stream. The caller holds h.mu.
func (h *hub) cover(kinds []record.KindSpec) {
	h.covered = map[string]bool{}
	for _, k := range kinds {
		h.covered[k.Name] = true
	}
	h.notify()
}

func newRetry() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (h *hub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	h.notify()
	// Callers of Next wait on their own channels, not on news.
	for c := range h.subs {
		c.signal()
	}
}

// follow reads one stream after the other. Each resumes where the previous one ended. It returns
// when ctx ends or no subscriber is left.
func (h *hub) follow(ctx context.Context) {
	retry := newRetry()
	var pos record.Position
	for {
		reading, cancel := context.WithCancel(ctx)
		kinds, wanted := h.begin(cancel)
		if !wanted || ctx.Err() != nil {
			cancel()
			return
		}
		next, err := h.read(reading, pos, kinds, retry.Reset)
		interrupted := reading.Err() != nil
		cancel()
		pos = next
		// An interruption is deliberate: new kinds, or no subscribers. It needs no pause.
		if interrupted {
			continue
		}
		h.failed(err)
		// The position is useless. The next stream starts now, and place reports the gap to
		// subscribers.
		if errors.Is(err, record.ErrHistoryLost) || errors.Is(err, record.ErrBroken) {
			pos = record.Position{}
		}
		pause(ctx, retry.NextBackOff())
	}
}

// begin returns the kinds to watch. wanted is false without subscribers. cancel ends the stream.
func (h *hub) begin(cancel context.CancelFunc) (kinds []record.KindSpec, wanted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		// The next subscriber must not inherit the kinds or the position.
		h.kinds, h.covered, h.placed, h.failure, h.cancel = map[string]bool{}, nil, false, nil, nil
		return nil, false
	}
	h.cancel = cancel
	for _, k := range slices.Sorted(maps.Keys(h.kinds)) {
		kinds = append(kinds, record.KindSpec{Name: k})
	}
	return kinds, true
}

// read delivers one stream from pos, or from the present position if pos is zero. It calls alive
// after each answer, and returns the position from which to resume.
func (h *hub) read(ctx context.Context, pos record.Position, kinds []record.KindSpec, alive func()) (record.Position, error) {
	if pos.IsZero() {
		// The position comes before the subscribers join, so that no change falls in between.
		now, err := h.watcher.Position(ctx)
		if err != nil {
			return pos, err
		}
		pos = now
		h.place(kinds)
	}
	stream, err := h.watcher.Watch(ctx, pos, kinds)
	if err != nil {
		return pos, err
	}
	defer func() {
		if err := closing.Bounded(ctx, stream.Close); err != nil {
			h.log.Debug("change stream is not closed", slog.Any("error", err))
		}
	}()
	h.mu.Lock()
	// An interrupted stream may lack the kinds of a new subscriber.
	if ctx.Err() == nil {
		h.cover(kinds)
	}
	h.mu.Unlock()
	for {
		batch, err := stream.Next(ctx)
		if err != nil {
			return pos, err
		}
		// This stream has dropped the changes of a kind that a new subscriber asks for. The next
		// stream must begin before them.
		if err := ctx.Err(); err != nil {
			return pos, err
		}
		alive()
		pos = batch.Pos
		h.deliver(batch.Changes)
	}
}

// place lets waiting subscribers of the next stream's kinds join, and marks all others as lost
// because changes before the new position are missing.
func (h *hub) place(kinds []record.KindSpec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placed, h.failure = true, nil
	h.cover(kinds)
	for c := range h.subs {
		if c.joined {
			c.lose()
		}
		c.joined = c.joined || h.covers(c)
	}
}

// failed records why no changes arrive, and logs the first of a series of failures.
func (h *hub) failed(err error) {
	h.mu.Lock()
	first := h.failure == nil
	h.failure = err
	if errors.Is(err, record.ErrHistoryLost) || errors.Is(err, record.ErrBroken) {
		// A subscriber that joins now would miss changes. It must wait for a new position.
		h.placed = false
	}
	h.mu.Unlock()
	if first {
		h.log.Warn("no changes arrive; the stream is opened again", slog.Any("error", err))
	}
}

func (h *hub) deliver(changes []record.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The stream works again, so the next failure is worth a log line.
	h.failure = nil
	for _, change := range changes {
		// A marker is a fence and changes no record. Views cannot read keys that are not strings.
		name, ok := change.Key.Name()
		if change.Marker != "" || !ok {
			continue
		}
		for c := range h.subs {
			c.add(Dirty{Kind: change.Kind, Name: name})
		}
	}
}
