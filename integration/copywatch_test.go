package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// copyWatch follows, in etcd, what the copy has stored of itself, and when switches began.
// It fails the test when a copy begins again: when a checkpoint falls back, or the plan
// is made anew.
type copyWatch struct {
	mu       sync.Mutex
	counts   map[string]int64 // records copied, by the key of the checkpoint
	plans    map[string]bool
	switches []time.Time
}

// watchCopy watches until the test ends.
func (s *system) watchCopy(ctx context.Context) *copyWatch {
	s.t.Helper()
	w := &copyWatch{counts: map[string]int64{}, plans: map[string]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	kvs, _, watch, err := s.etcd.Follow(ctx, s.record.Root()+"/")
	if err != nil || len(kvs) > 0 {
		s.t.Fatalf("%d keys before the start: %v", len(kvs), err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.follow(ctx, s, watch) })
	wg.Go(func() {
		switching := false
		for d := range s.record.Watch(ctx) {
			now := d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
			if now && !switching {
				w.mu.Lock()
				w.switches = append(w.switches, time.Now())
				w.mu.Unlock()
			}
			switching = now
		}
	})
	s.t.Cleanup(func() {
		cancel()
		wg.Wait()
		watch.Close()
	})
	return w
}

func (w *copyWatch) follow(ctx context.Context, s *system, watch coord.Watch) {
	for {
		events, err := watch.Next(ctx)
		if err != nil {
			if !errors.Is(err, context.Canceled) && ctx.Err() == nil {
				s.t.Errorf("watch etcd: %v", err)
			}
			return
		}
		for _, e := range events {
			w.see(s, strings.TrimPrefix(e.KV.Key, s.record.Root()+"/"), e)
		}
	}
}

func (w *copyWatch) see(s *system, key string, e coord.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Deleted:
	case strings.HasPrefix(key, "plans/"):
		if w.plans[key] {
			s.t.Errorf("%s is made again", key)
		}
		w.plans[key] = true
	case strings.HasPrefix(key, "checkpoints/"):
		var c syncer.Checkpoint
		if err := json.Unmarshal(e.KV.Value, &c); err != nil {
			s.t.Errorf("%s: %v", key, err)
		}
		if c.Count < w.counts[key] {
			s.t.Errorf("the copy of %s falls back from %d to %d", key, w.counts[key], c.Count)
		}
		w.counts[key] = c.Count
	}
}

// copied is how many records are copied, as far as it is stored, by the shards given by
// the last part of their key.
func (w *copyWatch) copied(shards func(shard string) bool) (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, count := range w.counts {
		if shards(key[strings.LastIndex(key, "/")+1:]) {
			n += count
		}
	}
	return n
}

// started returns when the latest switch began, and how many there were.
func (w *copyWatch) started() (time.Time, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.switches) == 0 {
		return time.Time{}, 0
	}
	return w.switches[len(w.switches)-1], len(w.switches)
}
