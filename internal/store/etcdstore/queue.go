package etcdstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"dbcontroller.dev/record"
)

// maxQueue is the size of the changes that wait for Next. A stream that falls further behind closes
// its watch, and Next opens another one where the queue ends.
const maxQueue = 8 << 20

// errFarBehind ends a queue that reached maxQueue.
var errFarBehind = errors.New("the stream is far behind")

// taken is what Next needs of one or more responses. It has whole revisions.
type taken struct {
	changes  []record.Change
	wall     int64
	at       int64 // everything up to this revision was taken
	progress bool  // Next must return the position now
}

// queue holds taken events between the goroutine that takes them and Next.
type queue struct {
	news chan struct{} // has an item when take may return something else

	mu    sync.Mutex
	items []taken
	bytes int
	end   error // why no more items come
}

func newQueue() queue { return queue{news: make(chan struct{}, 1)} }

// add appends taken events. full reports that the queue has reached its limit.
func (q *queue) add(t taken) (full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range t.changes {
		q.bytes += c.Size()
	}
	// Events without changes only move the position.
	if last := len(q.items) - 1; last >= 0 && len(t.changes) == 0 {
		q.items[last].at, q.items[last].progress = t.at, q.items[last].progress || t.progress
	} else {
		q.items = append(q.items, t)
	}
	q.signal()
	return q.bytes > maxQueue
}

// take removes the first item. Without items it returns the end, nil if more items may come.
func (q *queue) take() (t taken, some bool, end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return taken{}, false, q.end
	}
	t = q.items[0]
	q.items[0] = taken{}
	if q.items = q.items[1:]; len(q.items) == 0 {
		q.items = nil // the array of a long queue is not needed any more
	}
	for _, c := range t.changes {
		q.bytes -= c.Size()
	}
	return t, true, nil
}

// finish notes why no more items come. Nil: more items come again.
func (q *queue) finish(end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = end
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// reopen opens a watch from the last taken revision, and the goroutine that takes its events. ctx
// limits only this call. If it ends, the stream ends as well.
func (st *stream) reopen(ctx context.Context) error {
	// etcd's client lets watches with equal metadata share a stream. They would also share a token
	// that may expire, and each other's answers to progress requests.
	own := metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(st.store.conn.Ctx()), "dbc-stream", rand.Text())
	watching, stop := context.WithCancel(own)
	keep := context.AfterFunc(ctx, stop) // the client waits for a connection
	st.mu.Lock()
	st.watching, st.stop = watching, stop
	st.mu.Unlock()
	select {
	case <-st.closed: // Close has stopped the earlier watch
		stop()
	default:
	}
	st.queue.finish(nil)
	// Begin at the taken revision. A watch that begins at a future one gets no progress answers.
	events := st.store.conn.Watch(watching, st.first, clientv3.WithRange(st.end), clientv3.WithRev(st.seen))
	go func() {
		end := st.follow(events, st.seen)
		stop()
		st.queue.finish(end)
	}()
	if !keep() {
		return ctx.Err()
	}
	return nil
}

// reopenSoon is reopen within the time after which a stream counts as dead. The client would wait
// without a limit for an etcd that is gone.
func (st *stream) reopenSoon(ctx context.Context) error {
	soon, done := context.WithTimeout(ctx, patience*idle)
	defer done()
	err := st.reopen(soon)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: no connection for %s", record.ErrUnavailable, patience*idle)
	}
	return err
}

// follow takes events until their end, whose reason it returns. Those up to a revision were taken
// before.
func (st *stream) follow(events clientv3.WatchChan, from int64) error {
	for {
		resp, ok := <-events
		if err := st.ended(resp, ok); err != nil {
			return err
		}
		t, err := st.translate(resp, from)
		full := st.queue.add(t)
		switch {
		case err != nil:
			return err
		case full:
			return errFarBehind
		}
	}
}

// ended returns the reason for the end of the events. nil: the stream continues.
func (st *stream) ended(resp clientv3.WatchResponse, ok bool) error {
	err := resp.Err()
	switch {
	// Compacted changes never come back.
	case resp.CompactRevision != 0 || errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("changes after %s: %w", versionAt(st.seen), record.ErrHistoryLost)
	case err != nil:
		return fmt.Errorf("watch: %w: %w", record.ErrUnavailable, err)
	case !ok:
		return fmt.Errorf("watch: %w: the stream has ended", record.ErrUnavailable)
	}
	return nil
}

// translate returns what Next needs of a response. A response has whole revisions, and so whole
// commits. After an error the events before it still count.
func (st *stream) translate(resp clientv3.WatchResponse, from int64) (t taken, err error) {
	change := st.change
	if st.target != nil {
		st.target.look(st.store.at, resp.Events)
		change = st.followed
	}
	for _, ev := range resp.Events {
		// A watch begins at the position itself, but its changes were taken already.
		if ev.Kv.ModRevision <= from {
			continue
		}
		var c record.Change
		var wall int64
		var ok bool
		if c, wall, ok, err = change(ev); err != nil {
			break
		}
		if ok {
			t.changes = append(t.changes, c)
			t.wall = wall
		}
		// Use the event's revision. The header has the newest one, and more of it may follow.
		st.seen = max(st.seen, ev.Kv.ModRevision)
	}
	if resp.IsProgressNotify() {
		st.seen = max(st.seen, resp.Header.GetRevision())
		t.progress = true
	}
	t.progress = st.target.takeNudge() || t.progress
	t.at = st.seen
	return t, err
}
