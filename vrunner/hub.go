package vrunner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
)

// closeTimeout bounds how long the end of a stream may take.
const closeTimeout = 5 * time.Second

// hub reads the changes of one version with one stream, while it has subscribers, and
// delivers to each of them what it asked for. It never waits for a subscriber.
type hub struct {
	version string
	watcher record.Watcher
	log     *zap.Logger

	mu      sync.Mutex
	subs    map[*subscription]struct{}
	kinds   map[string]bool    // what the stream watches: grows while there are subscribers
	placed  bool               // the stream has a place: what is acknowledged from now on is after it
	failure error              // why it has none, so far
	cancel  context.CancelFunc // ends the present stream; nil if there is none
	stopped bool
	news    chan struct{} // closed and replaced when anything of the above changed
}

func newHub(version string, w record.Watcher, log *zap.Logger) *hub {
	return &hub{
		version: version, watcher: w, log: log.With(zap.String("version", version)),
		subs: map[*subscription]struct{}{}, kinds: map[string]bool{}, news: make(chan struct{}),
	}
}

// subscribe adds a subscriber and waits until the stream has a place and, if it had one
// before, until admit has seen the database.
func (h *hub) subscribe(ctx context.Context, kinds []string) (*subscription, error) {
	c := &subscription{hub: h, kinds: slices.Clone(kinds), wake: make(chan struct{}, 1), held: memory.Of(ctx).Hold()}
	h.mu.Lock()
	h.subs[c] = struct{}{}
	grown := false
	for _, k := range kinds {
		grown = grown || !h.kinds[k]
		h.kinds[k] = true
	}
	if grown {
		// The stream is opened again, for one more kind, at the place where it is: what
		// happens to that kind from now on is after it.
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
	if len(h.subs) == 0 {
		h.interrupt()
	}
}

// interrupt ends the present stream. h.mu is held.
func (h *hub) interrupt() {
	if h.cancel != nil {
		h.cancel()
	}
}

// notify wakes who waits for news. h.mu is held.
func (h *hub) notify() {
	close(h.news)
	h.news = make(chan struct{})
}

// run follows the changes whenever there are subscribers, until ctx ends.
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

// admit lets subscribers join a stream that runs, once the database has made something
// durable after they came: what they list then holds all that the stream delivered before.
// A primary that was deposed and does not know it could otherwise answer with less. Those
// who wait at the same time share the effort.
func (h *hub) admit(ctx context.Context) error {
	retry := newRetry()
	for ctx.Err() == nil {
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
		if h.placed { // otherwise place does it
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
		if h.placed && !c.joined {
			subs = append(subs, c)
		}
	}
	return subs, h.news
}

func newRetry() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
}

// pause waits, unless ctx ends.
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
	for c := range h.subs {
		c.signal()
	}
}

// follow reads streams, each from where the one before ended, until ctx ends or no
// subscriber is left.
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
		if interrupted {
			continue
		}
		h.failed(err)
		if errors.Is(err, record.ErrHistoryLost) || errors.Is(err, record.ErrBroken) {
			pos = record.Position{}
		}
		pause(ctx, retry.NextBackOff())
	}
}

// begin returns what to watch, if there is a subscriber that wants it. cancel ends the
// reading.
func (h *hub) begin(cancel context.CancelFunc) (kinds []record.KindSpec, wanted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		h.kinds, h.placed, h.failure, h.cancel = map[string]bool{}, false, nil, nil
		return nil, false
	}
	h.cancel = cancel
	for _, k := range slices.Sorted(maps.Keys(h.kinds)) {
		kinds = append(kinds, record.KindSpec{Name: k})
	}
	return kinds, true
}

// read delivers one stream, from pos or, with none, from now on, and calls alive whenever
// the stream answers. It returns the place from which to go on.
func (h *hub) read(ctx context.Context, pos record.Position, kinds []record.KindSpec, alive func()) (record.Position, error) {
	if pos.IsZero() {
		now, err := h.watcher.Position(ctx)
		if err != nil {
			return pos, err
		}
		pos = now
		h.place()
	}
	stream, err := h.watcher.Watch(ctx, pos, kinds)
	if err != nil {
		return pos, err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := stream.Close(bounded); err != nil {
			h.log.Debug("change stream is not closed", zap.Error(err))
		}
	}()
	for {
		batch, err := stream.Next(ctx)
		if err != nil {
			return pos, err
		}
		alive()
		pos = batch.Pos
		h.deliver(batch.Changes)
	}
}

// place lets the subscribers that wait begin, and notifies all others that there is a gap
// before it.
func (h *hub) place() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placed, h.failure = true, nil
	for c := range h.subs {
		if c.joined {
			c.lose()
		}
		c.joined = true
	}
	h.notify()
}

// failed notes why no changes arrive; the first of several reasons is worth a line.
func (h *hub) failed(err error) {
	h.mu.Lock()
	first := h.failure == nil
	h.failure = err
	if errors.Is(err, record.ErrHistoryLost) || errors.Is(err, record.ErrBroken) {
		// Nobody joins before there is a new place.
		h.placed = false
	}
	h.mu.Unlock()
	if first {
		h.log.Warn("no changes arrive; the stream is opened again", zap.Error(err))
	}
}

func (h *hub) deliver(changes []record.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = nil
	for _, change := range changes {
		// A marker is a fence, which changes no record. Names that are no strings cannot
		// be read or listed through a view.
		name, ok := change.Key.Name()
		if change.Marker != "" || !ok {
			continue
		}
		for c := range h.subs {
			c.add(Dirty{Kind: change.Kind, Name: name})
		}
	}
}
