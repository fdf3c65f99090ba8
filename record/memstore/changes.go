package memstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

const idle = time.Second

var errClosed = errors.New("stream is closed")

// Watch opens the changes after a position.
func (s *Store) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	st := &stream{kinds: append([]record.KindSpec(nil), kinds...)}
	st.match = st.watched
	return s.stream(ctx, from, st)
}

// Follow opens the changes of a target's collections.
func (s *Store) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	st := &stream{followed: map[string]string{}}
	for kind, tok := range toks {
		st.followed[tok.ID] = kind
	}
	st.match = st.target
	return s.stream(ctx, from, st)
}

// Nudge moves the clock, as the write of a pulse does, and wakes the streams.
func (s *Store) Nudge(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	s.cluster.clock++
	s.cluster.append(entry{db: s.db, nudge: true})
	return nil
}

func (s *Store) stream(ctx context.Context, from record.Position, st *stream) (record.Stream, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	seq, err := seqOf(from)
	if err != nil {
		return nil, err
	}
	if seq < s.cluster.forgotten {
		return nil, fmt.Errorf("watch from %s: %w", from.At, record.ErrHistoryLost)
	}
	if seq > s.cluster.end() {
		return nil, fmt.Errorf("watch from %s: the log has not come so far", from.At)
	}
	st.store, st.next, st.restores, st.closed = s, seq, s.cluster.restores, make(chan struct{})
	return st, nil
}

// stream reads the log from next on. One caller at a time, as the contract has it.
type stream struct {
	store *Store
	kinds []record.KindSpec
	// followed are the kinds of Follow, by the identity of their collections.
	followed map[string]string
	// match returns what an entry means to the stream. An error ends it.
	match func(entry) (change record.Change, ok bool, err error)
	next  int
	// restores is the cluster's when the stream was opened.
	restores int
	broken   error
	closed   chan struct{}
}

// Next waits for the log to grow, at most about a second.
func (st *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for waited := false; ; {
		batch, wake, err := st.take(ctx, waited)
		if err != nil || wake == nil {
			return batch, err
		}
		select {
		case <-ctx.Done():
			return record.ChangeBatch{}, ctx.Err()
		case <-st.closed:
			return record.ChangeBatch{}, errClosed
		case <-timer.C:
			waited = true
		case <-wake:
		}
	}
}

// take returns what the log has now. With nothing, it returns the channel to wait on,
// or, when the wait is over, an empty batch at a later place.
func (st *stream) take(ctx context.Context, waited bool) (record.ChangeBatch, <-chan struct{}, error) {
	select {
	case <-st.closed:
		return record.ChangeBatch{}, nil, errClosed
	default:
	}
	if err := st.store.begin(ctx); err != nil {
		return record.ChangeBatch{}, nil, err
	}
	c := st.store.cluster
	defer c.mu.Unlock()
	if st.broken == nil && st.restores != c.restores {
		st.broken = interrupted()
	}
	if st.broken == nil && st.next < c.forgotten {
		st.broken = fmt.Errorf("change %d: %w", st.next, record.ErrHistoryLost)
	}
	var batch record.ChangeBatch
	for size := 0; st.broken == nil && st.next < c.end() && size < record.CommitBytes; {
		e := c.log[st.next-c.forgotten]
		if len(batch.Changes) >= c.opts.Changes && (c.opts.Torn || e.at != c.log[st.next-1-c.forgotten].at) {
			break
		}
		change, ok, err := st.match(e)
		if err != nil {
			st.broken = err
			break
		}
		st.next++
		waited = waited || e.nudge && st.followed != nil && e.db == st.store.db
		if ok {
			batch.Changes = append(batch.Changes, change)
			batch.Wall = e.wall
			size += change.Size()
		}
	}
	if len(batch.Changes) == 0 && st.broken != nil {
		return record.ChangeBatch{}, nil, st.broken
	}
	if len(batch.Changes) == 0 && !waited {
		return record.ChangeBatch{}, c.wake, nil
	}
	if len(batch.Changes) == 0 {
		// An idle database still moves its clock, as the no-ops of a replica set do.
		c.clock++
	}
	batch.Pos = c.positionAt(st.next)
	return batch, nil, nil
}

// target returns what an entry means to a stream of Follow.
func (st *stream) target(e entry) (change record.Change, ok bool, err error) {
	kind, ours := st.followed[e.id]
	switch {
	case e.db != st.store.db || !ours:
		return record.Change{}, false, nil
	case e.dropped:
		return record.Change{}, false, fmt.Errorf("%s was dropped: %w", e.collection, record.ErrBroken)
	case e.rename != "":
		return record.Change{Kind: kind, Marker: e.rename}, true, nil
	case e.mark != "":
		return record.Change{Kind: kind, Marker: e.mark}, true, nil
	default:
		return record.Change{Kind: kind, Key: e.key, Delete: e.deleted, Origin: e.origin, Guard: e.guard}, true, nil
	}
}

// watched returns what an entry means to the kinds of a stream of Watch.
func (st *stream) watched(e entry) (change record.Change, ok bool, err error) {
	if e.db != st.store.db || e.nudge {
		return record.Change{}, false, nil
	}
	for _, k := range st.kinds {
		own := belongs(k, e.collection)
		switch {
		case e.rename != "":
			if !own && !belongs(k, e.rename) && !epochName(k, e.rename) {
				continue
			}
			// A fixed-name kind leaves its name for an epoch's, has others, and comes back.
			if !belongs(k, e.rename) && !epochName(k, e.rename) {
				return record.Change{}, false, replaced(k, "%s was renamed to %s", e.collection, e.rename)
			}
			return record.Change{Kind: k.Name, Marker: e.rename}, true, nil
		case !own:
			continue
		case e.dropped:
			return record.Change{}, false, replaced(k, "%s was dropped", e.collection)
		case e.mark != "":
			return record.Change{Kind: k.Name, Marker: e.mark}, true, nil
		default:
			return record.Change{Kind: k.Name, Key: e.key, Delete: e.deleted}, true, nil
		}
	}
	return record.Change{}, false, nil
}

// replaced is what ends the stream: of an application's collection another one may be followed.
func replaced(k record.KindSpec, what string, args ...any) error {
	if what = fmt.Sprintf(what, args...); k.Fixed {
		return &record.ReplacedError{Kind: k.Name, What: what}
	}
	return fmt.Errorf("%s: %w", what, record.ErrBroken)
}

// belongs reports whether a physical name is one that the kind's changes come under.
func belongs(k record.KindSpec, name string) bool {
	if k.Fixed {
		return name == k.Name
	}
	return epochName(k, name)
}

func epochName(k record.KindSpec, name string) bool {
	kind, _, ok := record.KindOfPhysical(name)
	return ok && kind == k.Name
}

// Close ends the stream and wakes a Next that waits.
func (st *stream) Close(context.Context) error {
	select {
	case <-st.closed:
	default:
		close(st.closed)
	}
	return nil
}
