package etcdstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// Position returns the newest revision.
func (s *Store) Position(ctx context.Context) (record.Position, error) {
	resp, err := s.conn.Get(ctx, s.at.identity(), clientv3.WithCountOnly())
	if err != nil {
		return record.Position{}, s.readError("position", err)
	}
	return positionAt(resp.Header.GetRevision()), nil
}

func positionAt(revision int64) record.Position {
	return record.Position{At: versionAt(revision), Token: binary.BigEndian.AppendUint64(nil, uint64(revision))}
}

// Watch opens the changes after a position. One etcd stream delivers all changes of the namespace,
// so that they keep their order. Watch drops changes of other kinds here.
func (s *Store) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	st := newStream(s)
	for _, k := range kinds {
		st.kinds[k.Name] = true
		if in := s.keys(record.Token{Kind: k.Name, Name: k.Name, Fixed: k.Fixed}); in != nil {
			st.own[k.Name] = *in
		}
	}
	return s.watch(ctx, from, st)
}

func newStream(s *Store) *stream {
	return &stream{store: s, kinds: map[string]bool{}, own: map[string]Keys{}, names: map[string]string{}, queue: newQueue(), closed: make(chan struct{})}
}

func (s *Store) watch(ctx context.Context, from record.Position, st *stream) (record.Stream, error) {
	if len(from.Token) != 8 {
		return nil, fmt.Errorf("position %x: it is from another backend", from.Token)
	}
	revision := int64(binary.BigEndian.Uint64(from.Token))
	// Read the names of the collections at that revision. Later names would assign changes to the
	// wrong kinds.
	resp, err := s.conn.Get(ctx, s.at.gates(), clientv3.WithPrefix(), clientv3.WithRev(revision))
	if compacted(err) {
		return nil, fmt.Errorf("watch from %s: %w", from.At, record.ErrHistoryLost)
	}
	if err != nil {
		return nil, s.readError("watch", err)
	}
	st.seen, st.at = revision, revision
	// Use one watch for everything. Several could deliver a fence before earlier writes.
	st.first, st.end = s.at.all(), clientv3.GetPrefixRangeEnd(s.at.all())
	for _, in := range st.own {
		st.first, st.end = min(st.first, in.Prefix), max(st.end, clientv3.GetPrefixRangeEnd(in.Prefix))
	}
	for _, kv := range resp.Kvs {
		st.names[strings.TrimPrefix(string(kv.Key), s.at.gates())] = string(kv.Value)
	}
	if err := st.reopen(ctx); err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return st, nil
}

// idle is the time that Next waits for changes.
const idle = time.Second

// patience is the number of unanswered progress requests after which a stream counts as dead.
// Without an answer, it is unknown whether the stream is in sync.
const patience = 10

// stream follows a namespace. It supports one caller of Next at a time. A goroutine takes the events
// from etcd's client, which would otherwise keep them all with their values. It keeps what Next
// needs of them, up to a limit.
type stream struct {
	store      *Store
	kinds      map[string]bool
	own        map[string]Keys // applications' keys by kind
	first, end string          // the range of keys

	// Of the goroutine that takes events, and of Next while there is none.
	names  map[string]string // of collections, by identity, as of seen
	seen   int64             // everything up to this revision was taken
	target *target           // only for a stream of Follow; nil otherwise

	// Of Next.
	at       int64           // everything up to this revision was delivered
	watching context.Context //nolint:containedctx // the life of the watch, which no call's context is

	queue  queue
	mu     sync.Mutex // guards stop
	stop   context.CancelFunc
	closed chan struct{}
	once   sync.Once
}

var errClosed = errors.New("stream is closed")

// Next waits up to a second for changes.
func (st *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	var batch record.ChangeBatch
	for asked := 0; ; {
		// What Next takes counts as delivered, so it must look at ctx before.
		if err := ctx.Err(); err != nil {
			return record.ChangeBatch{}, err
		}
		enough, end := st.take(&batch)
		switch {
		case enough:
			st.gather(ctx, &batch)
			batch.Pos = positionAt(st.at)
			return batch, nil
		case errors.Is(end, errFarBehind):
			if err := st.reopenSoon(ctx); err != nil {
				return record.ChangeBatch{}, fmt.Errorf("watch: %w", err)
			}
		case end != nil:
			return record.ChangeBatch{}, st.because(end)
		}
		select {
		case <-ctx.Done():
			return record.ChangeBatch{}, ctx.Err()
		case <-st.closed:
			return record.ChangeBatch{}, errClosed
		case <-st.queue.news:
		case <-timer.C:
			if asked++; asked > patience {
				return record.ChangeBatch{}, fmt.Errorf("watch: %w: no answer for %s", record.ErrUnavailable, patience*idle)
			}
			// The stream does not show other changes of the cluster. The answer reports how far it
			// is.
			if err := st.askProgress(ctx); err != nil {
				return record.ChangeBatch{}, err
			}
			timer.Reset(idle)
		}
	}
}

// because returns the reason for the end of the events. A closed stream has no other.
func (st *stream) because(end error) error {
	select {
	case <-st.closed:
		return errClosed
	default:
		return end
	}
}

// Limits of gather: the wait for a further change, the total time, and the number of changes.
const (
	gatherPause = 2 * time.Millisecond
	gatherTime  = 100 * time.Millisecond
	mostChanges = 1000
)

// gather adds changes that follow the first one without a pause. etcd sends each commit separately.
// Applying them one by one would be slower than the clients that commit them.
func (st *stream) gather(ctx context.Context, batch *record.ChangeBatch) {
	whole, pause := time.NewTimer(gatherTime), time.NewTimer(gatherPause)
	defer whole.Stop()
	defer pause.Stop()
	for len(batch.Changes) > 0 && len(batch.Changes) < mostChanges && ctx.Err() == nil {
		before := len(batch.Changes)
		if _, end := st.take(batch); end != nil {
			return // the next call sees the same end
		}
		if len(batch.Changes) > before {
			pause.Reset(gatherPause)
			continue
		}
		select {
		case <-st.queue.news:
		case <-pause.C:
			return
		case <-whole.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// take moves events from the queue to a batch, whole revisions, up to about the most that a batch
// has. enough reports whether the batch has a reason to be returned now. end is the reason why no
// more events come, once the queue is empty.
func (st *stream) take(batch *record.ChangeBatch) (enough bool, end error) {
	for len(batch.Changes) < mostChanges {
		t, some, end := st.queue.take()
		if !some {
			return enough, end
		}
		if len(t.changes) > 0 {
			batch.Changes = append(batch.Changes, t.changes...)
			batch.Wall = t.wall
		}
		st.at = t.at
		// Return progress without changes too: it advances the position of an idle kind.
		enough = enough || len(batch.Changes) > 0 || t.progress
	}
	return true, nil
}

// askProgress requests the progress of the stream. The client accepts the request only while it is
// connected.
func (st *stream) askProgress(ctx context.Context) error {
	// The request must use the watch's context, whose metadata selects its stream.
	asking, done := context.WithTimeout(st.watching, idle)
	defer done()
	defer context.AfterFunc(ctx, done)()
	err := st.store.conn.RequestProgress(asking)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("watch: %w: there is no connection", record.ErrUnavailable)
	default:
		return fmt.Errorf("watch: %w", err)
	}
}

// change translates an event for the stream's kinds. An error ends the stream.
func (st *stream) change(ev *clientv3.Event) (c record.Change, wall int64, ok bool, err error) {
	for kind, in := range st.own {
		if name, ok := strings.CutPrefix(string(ev.Kv.Key), in.Prefix); ok {
			return record.Change{Kind: kind, Key: record.StringKey(name), Delete: ev.Type == mvccpb.DELETE}, time.Now().UnixMilli(), true, nil
		}
	}
	if !strings.HasPrefix(string(ev.Kv.Key), st.store.at.all()) {
		return c, 0, false, nil // a key between the namespace and an application's keys
	}
	what, id, rest := st.store.at.split(string(ev.Kv.Key))
	switch what {
	case "g":
		// A change of a gate is a fence, or the end of a collection.
		return st.moved(id, ev)
	case "d":
	default:
		return c, 0, false, nil
	}
	// Use the collection's name at this revision, not the present one.
	kind, _, isEpoch := record.KindOfPhysical(st.names[id])
	if !isEpoch || !st.kinds[kind] {
		return c, 0, false, nil
	}
	key, err := keyFrom(rest)
	if err != nil {
		return c, 0, false, fmt.Errorf("%s: %w: %w", st.names[id], record.ErrBroken, err)
	}
	wall = time.Now().UnixMilli() // the event of a delete has no time
	if ev.Type == mvccpb.PUT {
		e, err := open(ev.Kv.Value)
		if err != nil {
			return c, 0, false, fmt.Errorf("%s: %w: %w", st.names[id], record.ErrBroken, err)
		}
		wall = e.wall
	}
	return record.Change{Kind: kind, Key: key, Delete: ev.Type == mvccpb.DELETE}, wall, true, nil
}

// kindOf returns the kind of a collection's name.
func (st *stream) kindOf(name string) (kind string, ok bool) {
	if _, own := st.own[name]; own {
		return name, true
	}
	kind, _, ok = record.KindOfPhysical(name)
	return kind, ok && st.kinds[kind]
}

// moved translates a change of a gate: a collection was created, renamed or dropped.
func (st *stream) moved(id string, ev *clientv3.Event) (c record.Change, wall int64, ok bool, err error) {
	was := st.names[id]
	_, own := st.kindOf(was)
	if ev.Type == mvccpb.DELETE {
		delete(st.names, id)
		if own {
			return c, 0, false, fmt.Errorf("%s was dropped: %w", was, record.ErrBroken)
		}
		return c, 0, false, nil
	}
	to := string(ev.Kv.Value)
	st.names[id] = to
	next, isOurs := st.kindOf(to)
	switch {
	// A new collection, or an unchanged name, is no fence.
	case was == "" || was == to:
		return c, 0, false, nil
	case isOurs:
		return record.Change{Kind: next, Marker: to}, time.Now().UnixMilli(), true, nil
	// The collection left the kind under a name that is not ours.
	case own:
		return c, 0, false, fmt.Errorf("%s was renamed to %s: %w", was, to, record.ErrBroken)
	default:
		return c, 0, false, nil
	}
}

// Close ends the stream and wakes a waiting Next.
func (st *stream) Close(context.Context) error {
	st.once.Do(func() {
		close(st.closed)
		st.mu.Lock()
		defer st.mu.Unlock()
		st.stop()
	})
	return nil
}
