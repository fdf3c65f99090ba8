package syncer_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
)

// loads notes the keys that a target is asked to load.
type loads struct {
	record.Namespace
	mu   sync.Mutex
	keys []record.Key
}

func (l *loads) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	l.mu.Lock()
	for _, g := range b.Groups {
		for _, w := range g.Writes {
			l.keys = append(l.keys, w.Key)
		}
	}
	l.mu.Unlock()
	return l.Namespace.Load(ctx, b)
}

// TestChangedBeforeItsPage: what changed before the copy came to it is in the target, and is not
// inserted with the others of its page.
func TestChangedBeforeItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, h := intoFixed(t), hold("load", "a")
		for _, key := range []string{"a", "b", "changed", "x"} {
			w.put("a1", key, 1)
		}
		seen := &loads{Namespace: w.dst}
		e := w.engineWith(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { h.Namespace, p.Target = seen, h }, func(c *syncer.Config) {
			c.Workers, c.Page = 1, 1
		})
		w.begin()
		<-h.entered
		w.put("a1", "changed", 2)
		<-time.After(5 * time.Second) // it is applied
		if n := w.target("a2", "changed"); n != 2 {
			t.Fatalf("the change is not applied: %d", n)
		}
		close(h.release)
		w.eventually("ready", w.allReady)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		loaded := func(key string) bool { return slices.Contains(seen.keys, record.StringKey(key)) }
		if loaded("changed") || !loaded("a") || !loaded("x") {
			t.Errorf("loaded: %v", seen.keys)
		}
		if n := w.target("a2", "changed"); n != 2 {
			t.Errorf("changed is %d", n)
		}
		e.stop(t)
	})
}
