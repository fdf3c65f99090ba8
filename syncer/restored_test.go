package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// backedUp is a source that is restored from a backup at a read of its records.
type backedUp struct {
	record.Namespace
	w *world

	mu       sync.Mutex
	backup   *memstore.Backup
	outage   bool // the read that meets the restore fails, and is repeated
	armed    bool
	restored bool
	refused  int // calls of lives after the restore
}

func (b *backedUp) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	b.mu.Lock()
	restores := b.armed && !b.restored
	b.restored = b.restored || restores
	b.mu.Unlock()
	if restores {
		b.w.src.Cluster().Restore(b.backup, func() {})
		for range 100 { // its clock goes on
			b.w.check(b.w.src.Nudge(ctx))
		}
		if b.outage {
			return record.Snapshot{}, fmt.Errorf("connection refused: %w", record.ErrUnavailable)
		}
	}
	return b.Namespace.Read(ctx, req)
}

func (b *backedUp) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = true
}

// lives is what a beat says.
func (b *backedUp) lives(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.restored {
		return nil
	}
	b.refused++
	return errors.New("it was restored from a backup")
}

func (b *backedUp) found() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused > 0
}

// TestRestoredSourceIsNotApplied: the target may hold the only copy of what a restore of the source
// has undone. So nothing that is read of a restored source is written over it, whatever the reason to
// read was.
func TestRestoredSourceIsNotApplied(t *testing.T) {
	const old, latest, foreign, poison = 3, 5, 7, -1
	key := keyIn(1, 0)
	for _, c := range []struct {
		name   string
		outage bool
		begin  func(w *world, b *backedUp)
	}{
		{"a repair of what others wrote to the target", false, func(w *world, b *backedUp) {
			b.arm()
			w.hand().put("a2", key, foreign)
		}},
		{"a retry of a parked group", false, func(w *world, b *backedUp) {
			w.put("a1", key, poison)
			w.eventually("parked", func() bool { return len(w.parked()) == 1 })
			b.arm()
		}},
		{"a change, after an outage", true, func(w *world, b *backedUp) {
			b.arm()
			w.put("a1", key, latest+1)
		}},
		{"a change, without an error", false, func(w *world, b *backedUp) {
			b.arm()
			w.put("a1", key, latest+1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				b := &backedUp{Namespace: w.src, w: w, outage: c.outage}
				w.put("a1", key, old)
				w.begin()
				r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source, p.Lives = b, b.lives })
				w.eventually("ready", w.allReady)
				b.backup = w.src.Cluster().Backup(func() {})
				w.put("a1", key, latest)
				w.eventually("the latest state", func() bool { return w.target("a2", key) == latest })
				w.eventually("ready again", w.allReady)
				c.begin(w, b)
				w.eventually("the restore is found", b.found)
				<-time.After(20 * time.Second) // retries
				if n := w.target("a2", key); n == old {
					t.Errorf("the target holds %d, the state of the backup", n)
				}
				r.stop(t)
			})
		})
	}
}

// TestSourceIsCheckedOncePerConnection: a check writes into both databases. Changes over connections
// that were checked need none.
func TestSourceIsCheckedOncePerConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const changes = 300
		w := newWorld(t)
		w.begin()
		var checks atomic.Int64
		r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Lives = func(context.Context) error { checks.Add(1); return nil }
		})
		w.eventually("ready", w.allReady)
		before := checks.Load()
		for n := range changes {
			w.put("a1", keyIn(1, 0), n)
			w.eventually("the change", func() bool { return w.target("a2", keyIn(1, 0)) == n })
		}
		// The engine also checks before it stores checkpoints.
		if n := checks.Load() - before; n > changes/10 {
			t.Errorf("%d checks for %d changes", n, changes)
		}
		r.stop(t)
	})
}

// rewound is a source that is restored after the fence of loaders: the positions from behind the fence are
// later than all that it can show.
type rewound struct {
	record.Namespace
	w *world
}

func (r rewound) Position(ctx context.Context) (record.Position, error) {
	p, err := r.Namespace.Position(ctx)
	if err != nil {
		return p, err
	}
	d, err := r.w.store.Get(ctx)
	if upgradestate.LoadersFenced(d, "v2", 0) {
		p.At[0] = 0x7f
	}
	return p, err
}

// TestComparisonOfARestoredSource: a source that is older than the comparison demands is not compared. The
// engine does not wait for it for ever: it ends with the decision about the restore.
func TestComparisonOfARestoredSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("a1", keyIn(1, 0), 1)
		w.begin()
		r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = rewound{w.src, w}
			p.Log = zap.NewNop() // it logs an error of each page
		})
		w.eventually("a failed comparison", func() bool {
			p, _ := r.progress(1)
			return strings.Contains(p.LastError, "the server is only at")
		})
		<-time.After(20 * time.Second) // retries
		if n := len(w.ready()); n == ring {
			t.Error("all shards are ready")
		}
		w.apply(upgradestate.FoundRestored{Restored: upgradestate.Restored{Version: "v1", What: "its beat is older"}, Epoch: 1})
		w.apply(upgradestate.FollowRestored{Version: "v1", Epoch: 1})
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
}
