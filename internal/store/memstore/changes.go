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

// Nudge advances the clock, as a small write would, and wakes the streams.
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
	// The next entry of this position is gone, so the stream would have a gap.
	if seq < s.cluster.forgotten {
		return nil, fmt.Errorf("watch from %s: %w", from.At, record.ErrHistoryLost)
	}
	// The position comes from another cluster.
	if seq > s.cluster.end() {
		return nil, fmt.Errorf("watch from %s: the log is not that far", from.At)
	}
	st.store, st.next, st.restores, st.closed = s, seq, s.cluster.restores, make(chan struct{})
	return st, nil
}

// stream reads the log from next on. It supports one caller at a time.
type stream struct {
	store *Store
	kinds []record.KindSpec
	// followed maps the identities of collections to kinds, in a stream of Follow.
	followed map[string]string
	// match translates an entry into a change for the stream. An error ends the stream.
	match func(entry) (change record.Change, ok bool, err error)
	next  int
	// restores is the cluster's number of restores when the stream was opened.
	restores int
	broken   error
	closed   chan struct{}
}

// Next waits up to a second for new log entries.
func (st *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for waited := false; ; {
		// Look before waiting: the log may have grown since the last call.
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

// take returns the present changes of the log. Without changes it returns the channel to wait on.
// With waited, it returns an empty batch at a later place instead.
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
	// After a restore, next is a position in another history.
	if st.broken == nil && st.restores != c.restores {
		st.broken = interrupted()
	}
	// LoseHistory has removed entries that this stream still needs.
	if st.broken == nil && st.next < c.forgotten {
		st.broken = fmt.Errorf("change %d: %w", st.next, record.ErrHistoryLost)
	}
	var batch record.ChangeBatch
	for size := 0; st.broken == nil && st.next < c.end() && size < record.CommitBytes; {
		e := c.log[st.next-c.forgotten]
		// End a full batch only between commits, unless Torn simulates several logs.
		if len(batch.Changes) >= c.opts.Changes && (c.opts.Torn || e.at != c.log[st.next-1-c.forgotten].at) {
			break
		}
		change, ok, err := st.match(e)
		if err != nil {
			st.broken = err
			break
		}
		st.next++
		// A nudge makes the stream return its position at once.
		waited = waited || e.nudge && st.followed != nil && e.db == st.store.db
		if ok {
			batch.Changes = append(batch.Changes, change)
			batch.Wall = e.wall
			size += change.Size()
		}
	}
	// Deliver the changes before the break first. The next call returns the error.
	if len(batch.Changes) == 0 && st.broken != nil {
		return record.ChangeBatch{}, nil, st.broken
	}
	if len(batch.Changes) == 0 && !waited {
		return record.ChangeBatch{}, c.wake, nil
	}
	if len(batch.Changes) == 0 {
		// An idle database still advances its clock, like the no-ops of a replica set.
		c.clock++
	}
	batch.Pos = c.positionAt(st.next)
	return batch, nil, nil
}

// target translates an entry for a stream of Follow.
func (st *stream) target(e entry) (change record.Change, ok bool, err error) {
	kind, ours := st.followed[e.id]
	switch {
	// The log has the changes of all databases of the cluster.
	case e.db != st.store.db || !ours || e.moved != move{}:
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

// watched translates an entry for a stream of Watch.
func (st *stream) watched(e entry) (change record.Change, ok bool, err error) {
	if e.db != st.store.db || e.nudge {
		return record.Change{}, false, nil
	}
	for _, k := range st.kinds {
		own := belongs(k, e.collection)
		switch {
		case e.rename != "":
			// The rename concerns another kind.
			if !own && !belongs(k, e.rename) && !epochName(k, e.rename) {
				continue
			}
			// A fixed-name kind moves from its own name to epoch names and back. Any other name
			// means that another client renamed the collection.
			if !belongs(k, e.rename) && !epochName(k, e.rename) {
				return record.Change{}, false, replaced(k, "%s was renamed to %s", e.collection, e.rename)
			}
			return record.Change{Kind: k.Name, Marker: e.rename}, true, nil
		// As in MongoDB, writes under a hidden name count; only the kind's own name can be dropped.
		case !own && (e.dropped || e.mark != "" || !epochName(k, e.collection)):
			continue
		case e.moved != move{}:
			// As in MongoDB, only the events of resharding show that this is no new collection, and
			// a managed kind's stream goes on without one.
			if !k.Fixed || !e.moved.reshard {
				continue
			}
			return record.Change{}, false, replaced(k, "%s was moved or resharded", e.collection)
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

// replaced returns the error that ends the stream. For a fixed-name kind it is a ReplacedError, so
// that the caller can follow the new collection of that name.
func replaced(k record.KindSpec, what string, args ...any) error {
	if what = fmt.Sprintf(what, args...); k.Fixed {
		return &record.ReplacedError{Kind: k.Name, What: what}
	}
	return fmt.Errorf("%s: %w", what, record.ErrBroken)
}

// belongs reports whether changes of a physical name belong to the kind.
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

// Close ends the stream and wakes a waiting Next.
func (st *stream) Close(context.Context) error {
	select {
	case <-st.closed:
	default:
		close(st.closed)
	}
	return nil
}
