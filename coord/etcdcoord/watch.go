package etcdcoord

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/internal/etcdconn"
)

// watch opens lazily, in Next, and again whenever etcd ends it for a passing reason
// (no leader, a lost stream). next is the place; nothing else has to survive.
type watch struct {
	store  *Store
	prefix string
	next   int64 // the first revision not yet delivered
	closed chan struct{}
	once   sync.Once

	// Used by Next only, of which there is one call at a time.
	events clientv3.WatchChan // nil while not open
	stop   context.CancelFunc // of events
	stream int64              // Store.streams as it was when events was opened
	retry  backoff.BackOff
}

var _ coord.Watch = (*watch)(nil)

// Watch implements coord.Store. The watch lives until Close or the store's Close; ctx
// bounds this call only.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (coord.Watch, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	return &watch{
		store: s, prefix: prefix, next: after + 1,
		closed: make(chan struct{}),
		retry: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(20*time.Millisecond),
			backoff.WithMaxInterval(time.Second),
			backoff.WithMaxElapsedTime(0)),
	}, nil
}

// Close implements coord.Watch. It may be called while Next waits, and again.
func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }

// Next implements coord.Watch. When ctx ends the watch stays usable.
func (w *watch) Next(ctx context.Context) ([]coord.Event, error) {
	events, err := w.wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", w.prefix, err)
	}
	return events, nil
}

func (w *watch) wait(ctx context.Context) ([]coord.Event, error) {
	for {
		if err := w.open(ctx); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.closed:
			w.drop()
			return nil, coord.ErrClosed
		case resp, ok := <-w.events:
			err := plain(resp.Err())
			switch {
			case errors.Is(err, rpctypes.ErrCompacted):
				w.drop()
				return nil, coord.ErrCompacted
			case err != nil && etcdconn.Refused(err) && !staleToken(err):
				w.drop()
				return nil, w.store.client.Denied(err)
			case err != nil || !ok:
				w.drop()
				if staleToken(err) {
					// The watches that run on that stream go on; all new ones get another.
					w.store.streams.CompareAndSwap(w.stream, w.stream+1)
				}
				w.store.log.Debug("watch opens again", zap.String("prefix", w.prefix),
					zap.Int64("revision", w.next), zap.Error(err))
				if err := w.pause(ctx); err != nil {
					return nil, err
				}
			case len(resp.Events) > 0:
				w.retry.Reset()
				return w.take(resp.Events), nil
			default:
				// Progress: nothing for us up to here, so an idle watch that has to open
				// again does not fall behind a compaction.
				w.retry.Reset()
				w.next = max(w.next, resp.Header.Revision+1)
			}
		}
	}
}

// plain makes the reason for which a watch was refused what it would be as the answer to a
// call: the server sends it as text, with gRPC's own words around.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if _, reason, ok := strings.Cut(err.Error(), " desc = "); ok {
		var known rpctypes.EtcdError
		if errors.As(rpctypes.Error(errors.New(reason)), &known) {
			return known
		}
	}
	return err
}

// open returns without an error with w.events set.
func (w *watch) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-w.closed:
		w.drop()
		return coord.ErrClosed
	case <-w.store.client.Ctx().Done():
		w.drop()
		return coord.ErrClosed
	default:
	}
	if w.events != nil {
		return nil
	}
	// The client's Watch blocks until the server confirms it, on the context that it
	// then lives by. Until then, that context ends with ctx and with Close as well.
	w.stream = w.store.streams.Load()
	// Watches whose contexts carry the same metadata share a stream.
	own := metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(w.store.client.Ctx()), "dbc-stream", strconv.FormatInt(w.stream, 10))
	life, stop := context.WithCancel(own)
	keep := context.AfterFunc(ctx, stop)
	go func() {
		defer stop()
		select {
		case <-w.closed:
		case <-life.Done():
		}
	}()
	// Not WithFragment: a revision must not be split.
	events := w.store.client.Watch(life, w.store.prefix+w.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(w.next), clientv3.WithProgressNotify())
	if !keep() {
		stop()
		return ctx.Err()
	}
	w.events, w.stop = events, stop
	return nil
}

// drop lets go of what is open.
func (w *watch) drop() {
	if w.events != nil {
		w.stop()
		w.events = nil
	}
}

// pause waits between two attempts.
func (w *watch) pause(ctx context.Context) error {
	select {
	case <-time.After(w.retry.NextBackOff()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.closed:
		return coord.ErrClosed
	}
}

// take converts a response. etcd never splits a revision over two responses.
func (w *watch) take(from []*clientv3.Event) []coord.Event {
	events := make([]coord.Event, len(from))
	for i, e := range from {
		if e.Type == clientv3.EventTypeDelete {
			key := strings.TrimPrefix(string(e.Kv.Key), w.store.prefix)
			events[i] = coord.Event{Deleted: true, KV: coord.KV{Key: key, Mod: e.Kv.ModRevision}}
		} else {
			events[i] = coord.Event{KV: w.store.kv(e.Kv)}
		}
	}
	w.next = from[len(from)-1].Kv.ModRevision + 1
	return events
}

// staleToken reports an error that goes away with a new token: etcd checks the token of a
// stream when a watch is made on it, and no stream ever gets a newer one.
func staleToken(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}
