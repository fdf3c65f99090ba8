package memcoord

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"dbcontroller.dev/internal/coord"
)

type watch struct {
	store  *Store
	prefix string
	after  int64 // everything up to here was delivered; one caller of Next at a time
	closed chan struct{}
	once   sync.Once
}

var _ coord.Watch = (*watch)(nil)

// Follow implements coord.Store.
func (s *Store) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	kvs, rev, err := s.List(ctx, prefix)
	if err != nil {
		return nil, 0, nil, err
	}
	return kvs, rev, &watch{store: s, prefix: prefix, after: rev, closed: make(chan struct{})}, nil
}

func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }

func (w *watch) Next(ctx context.Context) ([]coord.Event, error) {
	for {
		select {
		case <-w.closed:
			return nil, fmt.Errorf("watch %s: %w", w.prefix, coord.ErrClosed)
		case <-ctx.Done():
			return nil, fmt.Errorf("watch %s: %w", w.prefix, ctx.Err())
		default:
		}
		// Look before waiting: a revision may have come since the last call.
		events, wait, err := w.poll()
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
		case <-w.closed:
		}
	}
}

// poll returns the present events, or a channel that closes when the caller should try again.
func (w *watch) poll() ([]coord.Event, <-chan struct{}, error) {
	db := w.store.db
	db.mu.Lock()
	defer db.mu.Unlock()
	// While cut off, the watch must see nothing. Heal closes this channel.
	if w.store.cut != nil {
		return nil, w.store.cut, nil
	}
	if w.after+1 < db.compacted {
		return nil, nil, fmt.Errorf("watch %s after %d: %w", w.prefix, w.after, coord.ErrCompacted)
	}
	var events []coord.Event
	i := sort.Search(len(db.history), func(i int) bool { return db.history[i].rev > w.after })
	for _, r := range db.history[i:] {
		for _, e := range r.events {
			if strings.HasPrefix(e.KV.Key, w.prefix) {
				// The history keeps its own bytes, because a caller may change these.
				e.KV.Value = slices.Clone(e.KV.Value)
				events = append(events, e)
			}
		}
	}
	// Advance over revisions without our keys too, so that a compaction does not end an idle watch.
	w.after = db.rev
	return events, db.changed, nil
}
