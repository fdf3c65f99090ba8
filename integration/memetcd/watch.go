package memetcd

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// watcher holds the watches of one connection. As in clientv3, watches whose contexts have equal
// metadata share a stream. A progress request goes to a whole stream.
type watcher struct{ s *Server }

// stream is the shared state of watches with equal metadata.
type stream struct {
	begin map[*clientv3.Op]int64 // start revision of each watch
	asked int                    // number of progress requests
}

func streamOf(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	return fmt.Sprint(md)
}

// Watch delivers whole revisions, in order, until ctx ends. As in clientv3, it waits until there is a
// connection.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpWatch(key, opts...)
	out := make(chan clientv3.WatchResponse)
	s := w.s
	if s.connected(ctx) != nil {
		close(out)
		return out
	}
	defer s.mu.Unlock()
	name := streamOf(ctx)
	on := s.streams[name]
	if on == nil {
		on = &stream{begin: map[*clientv3.Op]int64{}}
		s.streams[name] = on
	}
	on.begin[&op] = op.Rev()
	next, seen, restores := op.Rev(), on.asked, s.restores
	// Without a revision a watch begins with the next change.
	if next == 0 {
		next = s.revision + 1
	}
	go func() {
		defer close(out)
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			// The last watch of a stream closes it, so that Streams shows leaks.
			if delete(on.begin, &op); len(on.begin) == 0 {
				delete(s.streams, name)
			}
		}()
		// As in clientv3, responses queue here until the caller takes them. A compaction does not
		// remove queued ones.
		var waiting []clientv3.WatchResponse
		for {
			s.mu.Lock()
			if restores != s.restores {
				// clientv3 silently reconnects and resumes at its next revision.
				on.begin[&op], restores = next, s.restores
			}
			resp, some := s.since(op, next)
			switch {
			// Without a connection nothing arrives. The events are delivered after Cut ends.
			case s.cut:
				some = false
			case some:
			case on.asked > seen && !s.silent:
				resp, some, seen = clientv3.WatchResponse{Header: s.header()}, true, on.asked
			}
			lost := some && resp.CompactRevision != 0
			if some {
				waiting = append(waiting, resp)
				// Everything up to this revision is in the response, whether or not it was for this
				// watch.
				next = max(next, s.revision+1)
			}
			changed := s.changed
			s.mu.Unlock()
			var first clientv3.WatchResponse
			var to chan<- clientv3.WatchResponse
			if len(waiting) > 0 {
				first, to = waiting[0], out
			}
			if lost {
				changed = nil // a lost watch ends with this response
			}
			select {
			case to <- first:
				waiting = waiting[1:]
				// As in clientv3, the channel closes after the report of a compaction.
				if first.CompactRevision != 0 {
					return
				}
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// since returns the watch's events from revision next on. some is false if there are none.
func (s *Server) since(op clientv3.Op, next int64) (resp clientv3.WatchResponse, some bool) {
	// The watch missed compacted events, so etcd cancels it instead of leaving a gap.
	if next < s.compacted {
		return clientv3.WatchResponse{Header: s.header(), CompactRevision: s.compacted, Canceled: true}, true
	}
	i, _ := slices.BinarySearchFunc(s.events, next, func(e *clientv3.Event, next int64) int { return int(e.Kv.ModRevision - next) })
	for _, e := range s.events[i:] {
		if covers(op.KeyBytes(), op.RangeBytes(), string(e.Kv.Key)) {
			resp.Events = append(resp.Events, e)
		}
	}
	resp.Header = s.header()
	return resp, len(resp.Events) > 0
}

// RequestProgress makes all watches of a stream report their progress, unless one of them begins at
// a future revision. As in clientv3, the request waits until there is a connection.
func (w *watcher) RequestProgress(ctx context.Context) error {
	if err := w.s.connected(ctx); err != nil {
		return err
	}
	defer w.s.mu.Unlock()
	on := w.s.streams[streamOf(ctx)]
	if on == nil {
		return nil
	}
	for _, from := range on.begin {
		// etcd sends no progress for a stream while one of its watches has not begun.
		if from > w.s.revision {
			return nil
		}
	}
	on.asked++
	w.s.wake()
	return nil
}

// connected waits until the server is not cut, and takes the lock. If it succeeds, the caller must
// unlock.
func (s *Server) connected(ctx context.Context) error {
	for {
		s.mu.Lock()
		if !s.cut {
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close does nothing: watches end with their contexts.
func (w *watcher) Close() error { return nil }

// Streams returns the number of open streams.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Silence stops or restarts responses to progress requests. A real member stops them while it is
// busy with watches that lag.
func (s *Server) Silence(on bool) { s.set(&s.silent, on) }

// Cut disconnects or reconnects all watches. Disconnected watches receive nothing. New ones and
// progress requests wait.
func (s *Server) Cut(on bool) { s.set(&s.cut, on) }

// Fill brings the server to its quota: the next transaction that puts something takes effect and is
// answered with the error of a full etcd. All later ones are refused.
func (s *Server) Fill() { s.set(&s.full, true) }

func (s *Server) set(what *bool, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what = on
	s.wake()
}
