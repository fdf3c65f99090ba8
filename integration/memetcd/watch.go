package memetcd

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// watcher is the watches of one connection. As with clientv3, those whose contexts have the
// same metadata share a stream, and each request for progress on it.
type watcher struct{ s *Server }

// stream is what watches with the same metadata share.
type stream struct {
	begin map[*clientv3.Op]int64 // the revision that each watch begins at
	asked int                    // requests for progress
}

func streamOf(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	return fmt.Sprint(md)
}

// Watch delivers whole revisions, in order, until ctx ends.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpWatch(key, opts...)
	out := make(chan clientv3.WatchResponse)
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	name := streamOf(ctx)
	on := s.streams[name]
	if on == nil {
		on = &stream{begin: map[*clientv3.Op]int64{}}
		s.streams[name] = on
	}
	on.begin[&op] = op.Rev()
	next, seen, restores := op.Rev(), on.asked, s.restores
	if next == 0 {
		next = s.revision + 1
	}
	go func() {
		defer close(out)
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if delete(on.begin, &op); len(on.begin) == 0 {
				delete(s.streams, name)
			}
		}()
		// As in clientv3, what the caller has not taken yet waits here, and no compaction takes it.
		var waiting []clientv3.WatchResponse
		for {
			s.mu.Lock()
			if restores != s.restores {
				// As clientv3 does without a word, it connects again from where it was.
				on.begin[&op], restores = next, s.restores
			}
			resp, some := s.since(op, next)
			switch {
			case s.cut:
				some = false
			case some:
			case on.asked > seen && !s.silent:
				resp, some, seen = clientv3.WatchResponse{Header: s.header()}, true, on.asked
			}
			lost := some && resp.CompactRevision != 0
			if some {
				waiting = append(waiting, resp)
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
				changed = nil // nothing comes after that
			}
			select {
			case to <- first:
				waiting = waiting[1:]
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

// since is what a watch has to be told from a revision on.
func (s *Server) since(op clientv3.Op, next int64) (resp clientv3.WatchResponse, some bool) {
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

// RequestProgress has all watches of a stream told how far they are, if none of them begins in the
// future. As with clientv3, the request is taken only while there is a connection.
func (w *watcher) RequestProgress(ctx context.Context) error {
	for {
		w.s.mu.Lock()
		if !w.s.cut {
			break
		}
		changed := w.s.changed
		w.s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer w.s.mu.Unlock()
	on := w.s.streams[streamOf(ctx)]
	if on == nil {
		return nil
	}
	for _, from := range on.begin {
		if from > w.s.revision {
			return nil
		}
	}
	on.asked++
	w.s.wake()
	return nil
}

// Close has nothing to do: watches end with their contexts.
func (w *watcher) Close() error { return nil }

// Streams is how many streams the watches are on.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Silence has requests for progress go without an answer until it is taken back, as a member
// does that is busy with watches that are behind.
func (s *Server) Silence(on bool) { s.set(&s.silent, on) }

// Cut takes watches off the network until it is taken back: they are told nothing, and requests
// for progress wait.
func (s *Server) Cut(on bool) { s.set(&s.cut, on) }

func (s *Server) set(what *bool, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what = on
	s.wake()
}
