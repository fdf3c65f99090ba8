package etcdstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

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
	return &stream{store: s, kinds: map[string]bool{}, own: map[string]Keys{}, names: map[string]string{}, closed: make(chan struct{})}
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
	st.from, st.at = revision, revision
	// Use one watch for everything. Several could deliver a fence before earlier writes.
	first, end := s.at.all(), clientv3.GetPrefixRangeEnd(s.at.all())
	for _, in := range st.own {
		first, end = min(first, in.Prefix), max(end, clientv3.GetPrefixRangeEnd(in.Prefix))
	}
	for _, kv := range resp.Kvs {
		st.names[strings.TrimPrefix(string(kv.Key), s.at.gates())] = string(kv.Value)
	}
	// etcd's client lets watches with equal metadata share a stream. They would also share a token
	// that may expire, and each other's answers to progress requests.
	own := metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(s.conn.Ctx()), "dbc-stream", rand.Text())
	watching, stop := context.WithCancel(own)
	keep := context.AfterFunc(ctx, stop)
	st.watching, st.stop = watching, stop
	// Begin at the delivered revision. A watch that begins at a future one gets no progress
	// answers.
	st.events = s.conn.Watch(watching, first, clientv3.WithRange(end), clientv3.WithRev(revision))
	if !keep() {
		stop()
		return nil, fmt.Errorf("watch: %w", ctx.Err())
	}
	return st, nil
}

// idle is the time that Next waits for changes.
const idle = time.Second

// patience is the number of unanswered progress requests after which a stream counts as dead.
// Without an answer, it is unknown whether the stream is in sync.
const patience = 10

// stream follows a namespace. It supports one caller of Next at a time.
type stream struct {
	store    *Store
	kinds    map[string]bool
	own      map[string]Keys   // applications' keys by kind
	names    map[string]string // of collections, by identity, as of at
	from     int64             // the stream begins after this revision
	at       int64             // everything up to this revision was delivered
	broken   error
	target   *target // only for a stream of Follow; nil otherwise
	events   clientv3.WatchChan
	watching context.Context //nolint:containedctx // the life of the watch, which no call's context is
	stop     context.CancelFunc
	closed   chan struct{}
	once     sync.Once
}

var errClosed = errors.New("stream is closed")

// Next waits up to a second for changes.
func (st *stream) Next(ctx context.Context) (record.ChangeBatch, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	var batch record.ChangeBatch
	for asked := 0; st.broken == nil; {
		// The select below chooses by chance, and what it takes counts as delivered.
		if err := ctx.Err(); err != nil {
			return record.ChangeBatch{}, err
		}
		select {
		case <-ctx.Done():
			return record.ChangeBatch{}, ctx.Err()
		case <-st.closed:
			return record.ChangeBatch{}, errClosed
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
		case resp, ok := <-st.events:
			if err := st.ended(resp, ok); err != nil {
				return record.ChangeBatch{}, err
			}
			st.take(resp, &batch)
			// Return progress without changes too: it advances the position of an idle kind.
			if len(batch.Changes) > 0 || resp.IsProgressNotify() || st.target.takeNudge() {
				st.gather(ctx, &batch)
				batch.Pos = positionAt(st.at)
				return batch, nil
			}
		}
	}
	return record.ChangeBatch{}, st.broken
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
	for len(batch.Changes) > 0 && len(batch.Changes) < mostChanges && st.broken == nil {
		select {
		case resp, ok := <-st.events:
			if st.ended(resp, ok) != nil {
				return // the next call sees the same end
			}
			st.take(resp, batch)
			pause.Reset(gatherPause)
		case <-pause.C:
			return
		case <-whole.C:
			return
		case <-ctx.Done():
			return
		}
	}
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

// ended returns the reason for the end of the events. nil: the stream continues.
func (st *stream) ended(resp clientv3.WatchResponse, ok bool) error {
	err := resp.Err()
	switch {
	// Compacted changes never come back, so the stream is broken for good.
	case resp.CompactRevision != 0 || errors.Is(err, rpctypes.ErrCompacted):
		st.broken = fmt.Errorf("changes after %s: %w", versionAt(st.at), record.ErrHistoryLost)
		return st.broken
	case err != nil:
		return fmt.Errorf("watch: %w: %w", record.ErrUnavailable, err)
	case !ok:
		select {
		case <-st.closed:
			return errClosed
		default:
			return fmt.Errorf("watch: %w: the stream has ended", record.ErrUnavailable)
		}
	}
	return nil
}

// take adds the changes of a response. A response has whole revisions, and so whole commits.
func (st *stream) take(resp clientv3.WatchResponse, batch *record.ChangeBatch) {
	change := st.change
	if st.target != nil {
		st.target.look(st.store.at, resp.Events)
		change = st.followed
	}
	for _, ev := range resp.Events {
		// A watch begins at the position itself, but its changes were delivered already.
		if ev.Kv.ModRevision <= st.from {
			continue
		}
		c, wall, ok, err := change(ev)
		if err != nil {
			st.broken = err
			return
		}
		if ok {
			batch.Changes = append(batch.Changes, c)
			batch.Wall = wall
		}
		// Use the event's revision. The header has the newest one, and more of it may follow.
		st.at = max(st.at, ev.Kv.ModRevision)
	}
	if resp.IsProgressNotify() {
		st.at = max(st.at, resp.Header.GetRevision())
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
		st.stop()
	})
	return nil
}
