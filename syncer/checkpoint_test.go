package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// measured counts what is written through it.
type measured struct {
	coord.Store
	bytes    atomic.Int64
	most     atomic.Int64 // of one value
	mostOps  atomic.Int64 // of one commit, with conditions
	requests atomic.Int64
}

func (m *measured) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	m.requests.Add(1)
	m.mostOps.Store(max(m.mostOps.Load(), int64(len(conditions)+len(ops))))
	for _, op := range ops {
		m.bytes.Add(int64(len(op.Key) + len(op.Value)))
		m.most.Store(max(m.most.Load(), int64(len(op.Value))))
	}
	return m.Store.Commit(ctx, conditions, ops)
}

// wide is a world of so many kinds, with so many records in each, and shards. What its engine
// stores is measured.
func wide(t *testing.T, kinds, records, ring int) (*world, *measured, *running) {
	t.Helper()
	m := &measured{Store: memcoord.New()}
	w := &world{
		t: t, coord: m.Store.(*memcoord.Store),
		src: memstore.NewCluster(memstore.Options{}).Open("old"), dst: memstore.NewCluster(memstore.Options{}).Open("new"),
	}
	r := transform.NewRegistry("items")
	for i := range kinds {
		name := fmt.Sprintf("kind%03d", i)
		keep := func(src, _ transform.Group) ([]record.Record, error) { return slices.Clone(src.Records), nil }
		w.check(r.Add("v1", "v2", transform.Spec{
			Name: name, Revision: "1", Up: keep, Down: keep,
			Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: name}}}},
			New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: name}}}},
		}))
	}
	var err error
	w.dir, err = r.Direction("v1", "v2")
	w.check(err)
	w.store = deployment.New(m, name, deployment.Config{})
	d, err := w.store.Create(t.Context(), "v1", ring)
	w.check(err)
	for v, ns := range map[string]record.Namespace{"v1": w.src, "v2": w.dst} {
		made, err := syncer.Provision(t.Context(), ns, d, v, "mem:"+v, r.Kinds(v), func(string) record.FenceClass { return "" })
		w.check(err)
		w.apply(upgradestate.AnnounceNamespace{Namespace: made})
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: w.dir.Hash()}})
	toks := w.tokens("v1")
	for i := range kinds {
		kind := fmt.Sprintf("kind%03d", i)
		var ms []record.Mutation
		for n := range records {
			ms = append(ms, mutation(kind, fmt.Sprintf("item-%d", n), n))
		}
		if len(ms) > 0 {
			w.check(w.src.Write(t.Context(), toks, ms))
		}
	}
	w.begin()
	w.drive()
	all := make([]int, ring)
	for n := range all {
		all[n] = n
	}
	lease, err := m.Grant(t.Context(), time.Hour)
	w.check(err)
	t.Cleanup(func() { _ = lease.Close(context.Background()) })
	ctx, cancel := context.WithCancel(t.Context())
	running := &running{
		engine: syncer.New(syncer.Parts{
			Source: w.src, Target: w.dst, Direction: w.dir, Deployments: w.store, Journal: w.store, Ownership: w.owner(all...),
			Comparer: verify.New(w.src, w.dst, w.dir), Lease: lease.ID, Log: zap.NewNop(),
		}, syncer.Config{Owner: "c", Epoch: 1, Ring: ring, Workers: 4, Page: 200, Copy: true}),
		cancel: cancel, done: make(chan error, 1),
	}
	go func() { running.done <- running.engine.Run(ctx) }()
	return w, m, running
}

// TestJournalIsBounded: what an engine of 512 shards and 50 kinds writes to the coordination
// store while every shard changes all the time has a bounded rate and bounded values, which
// the number of shards and kinds and the traffic do not change.
func TestJournalIsBounded(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const kinds, shardCount, seconds = 50, 512, 10
		const records = 32
		w, m, e := wide(t, kinds, records, shardCount)
		toks := w.tokens("v1")
		began, from, n := time.Now(), m.bytes.Load(), 0
		for time.Since(began) < seconds*time.Second {
			var ms []record.Mutation
			for i := range shardCount {
				ms = append(ms, mutation(fmt.Sprintf("kind%03d", (n+i)%kinds), fmt.Sprintf("item-%d", i), n))
			}
			w.check(w.src.Write(t.Context(), toks, ms))
			n++
			<-time.After(250 * time.Millisecond)
		}
		rate := (m.bytes.Load() - from) / seconds
		t.Logf("%d bytes a second in %d requests, the largest value has %d bytes", rate, m.requests.Load(), m.most.Load())
		// The plan and the reports of the shards are written once, and count here.
		const limit = 256 << 10
		if rate > limit {
			t.Errorf("%d bytes a second, want %d at most", rate, limit)
		}
		if m.bytes.Load() == from {
			t.Error("nothing was written")
		}
		if m.most.Load() > 300<<10 || m.mostOps.Load() > 64 {
			t.Errorf("the largest value has %d bytes, a commit %d operations", m.most.Load(), m.mostOps.Load())
		}
		e.stop(t)
	})
}

// beaten is a journal that compares what is stored with where the source was at the latest beat.
type beaten struct {
	syncer.Journal
	t  *testing.T
	mu sync.Mutex
	at record.Position // of the source, when the latest beat began
	n  int             // checkpoints that were stored
}

func (b *beaten) SaveCheckpoints(ctx context.Context, dir syncer.DirectionKey, all map[int]syncer.Checkpoint, locks ...coord.Condition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, c := range all {
		if b.n++; c.Position.Compare(b.at) > 0 {
			b.t.Errorf("shard %d: a checkpoint at %v is stored after a beat at %v", n, c.Position, b.at)
		}
	}
	return b.Journal.SaveCheckpoints(ctx, dir, all, locks...)
}

// TestBeatFollowsACheckpoint: no checkpoint says of a database what was done after the latest beat.
// A backup from before that beat is told by it, and every later one has all that the checkpoint says.
func TestBeatFollowsACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		journal := &beaten{Journal: w.store, t: t}
		var writes atomic.Int64
		var applying sync.Mutex
		r := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Journal = journal
			p.Lives = func(ctx context.Context) error {
				at, err := w.src.Position(ctx)
				if err != nil {
					return err
				}
				journal.mu.Lock()
				journal.at = at
				journal.mu.Unlock()
				// Changes are applied while the beat is counted. One call at a time can wait for them.
				if n := writes.Add(1); n < 20 && applying.TryLock() {
					defer applying.Unlock()
					w.put("a1", "key", int(n))
					synctest.Wait()
				}
				return nil
			}
		})
		w.eventually("ready", func() bool { return r.synced() && writes.Load() > 5 })
		r.stop(t)
		if journal.n == 0 {
			t.Error("no checkpoint was stored")
		}
	})
}
