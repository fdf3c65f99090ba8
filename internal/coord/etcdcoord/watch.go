package etcdcoord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdconn"
)

// watch opens in Follow. Next opens it again whenever etcd ends it for a temporary reason, such as a
// missing leader or a lost stream. Only next must survive that.
type watch struct {
	store  *Store
	prefix string
	next   int64 // first revision that was not delivered yet; 0: of the next change, until Follow knows
	closed chan struct{}
	once   sync.Once

	// Only Next uses these fields, and it supports one caller at a time.
	events clientv3.WatchChan // nil: not open
	stop   context.CancelFunc // ends events
	token  int64              // Store.outdated at the opening of events
	retry  backoff.BackOff
}

var _ coord.Watch = (*watch)(nil)

// Follow implements coord.Store. The watch also ends with the store's Close.
//
// A watch that begins in the past is behind at first, and etcd brings such watches up only every
// 100 ms: too long while writes are held. So the watch begins with the next change, and before the
// list.
func (s *Store) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	w := s.newWatch(prefix)
	if err := w.open(ctx); err != nil {
		w.Close()
		return nil, 0, nil, fmt.Errorf("watch %s: %w", prefix, err)
	}
	kvs, rev, err := s.List(ctx, prefix)
	if err != nil {
		w.Close()
		return nil, 0, nil, err
	}
	w.next = rev + 1 // take drops what the list has
	return kvs, rev, w, nil
}

func (s *Store) newWatch(prefix string) *watch {
	return &watch{
		store: s, prefix: prefix,
		closed: make(chan struct{}),
		retry: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(20*time.Millisecond),
			backoff.WithMaxInterval(time.Second),
			backoff.WithMaxElapsedTime(0)),
	}
}

// Close implements coord.Watch. It may run while Next waits, and more than once.
func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }

// Next implements coord.Watch. The watch stays usable after ctx ends.
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
			// Only the caller can recover, with a new List.
			case errors.Is(err, rpctypes.ErrCompacted):
				w.drop()
				return nil, coord.ErrCompacted
			case err != nil && etcdconn.Refused(err) && !staleToken(err):
				w.drop()
				return nil, w.store.client.Denied(err)
			case err != nil || !ok:
				w.drop()
				if staleToken(err) {
					// Watches on that stream continue. All new ones get another stream.
					w.store.outdated.CompareAndSwap(w.token, w.token+1)
				}
				w.store.log.Debug("watch opens again", zap.String("prefix", w.prefix),
					zap.Int64("revision", w.next), zap.Error(err))
				if err := w.pause(ctx); err != nil {
					return nil, err
				}
			case len(resp.Events) > 0:
				w.retry.Reset()
				if events := w.take(resp.Events); len(events) > 0 {
					return events, nil
				}
			default:
				// Progress without events: advance, so that an idle watch that opens again is not
				// behind a compaction.
				w.retry.Reset()
				w.next = max(w.next, resp.Header.Revision+1)
			}
		}
	}
}

// plain converts the error of a refused watch to the error of a call. The server sends the reason
// as text inside gRPC's own message.
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

// open sets w.events or returns an error.
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
	// The client's Watch blocks until the server confirms it, and then lives on its context. Until
	// then, the end of ctx and Close must also end that context.
	w.token = w.store.outdated.Load()
	stream := w.store.watches.join()
	// Watches with equal metadata share a stream, so the count separates them from a given-up one.
	own := metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(w.store.client.Ctx()), "dbc-stream", fmt.Sprintf("%d.%d", w.token, stream))
	life, stop := context.WithCancel(own)
	keep := context.AfterFunc(ctx, stop)
	go func() {
		defer w.store.watches.leave(stream)
		defer stop()
		select {
		case <-w.closed:
		case <-life.Done():
		}
	}()
	// WithFragment is not set, because it could split a revision.
	events := w.store.client.Watch(life, w.store.prefix+w.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(w.next), clientv3.WithProgressNotify())
	if !keep() {
		stop()
		return ctx.Err()
	}
	w.events, w.stop = events, stop
	return nil
}

// drop closes the open watch, if any.
func (w *watch) drop() {
	if w.events != nil {
		w.stop()
		w.events = nil
	}
}

// pause waits before the next attempt.
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

// take converts a response without the revisions that were delivered. etcd never splits a revision
// over two responses.
func (w *watch) take(from []*clientv3.Event) []coord.Event {
	events := make([]coord.Event, 0, len(from))
	for _, e := range from {
		switch {
		case e.Kv.ModRevision < w.next: // in the list of Follow, or delivered
		case e.Type == clientv3.EventTypeDelete:
			key := strings.TrimPrefix(string(e.Kv.Key), w.store.prefix)
			events = append(events, coord.Event{Deleted: true, KV: coord.KV{Key: key, Mod: e.Kv.ModRevision}})
		default:
			events = append(events, coord.Event{KV: w.store.kv(e.Kv)})
		}
	}
	w.next = max(w.next, from[len(from)-1].Kv.ModRevision+1)
	return events
}

// staleToken reports an error that a new token fixes. etcd checks a stream's token when it creates
// a watch on the stream, and a stream never gets a newer token.
func staleToken(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}
