package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// worldOf is a world whose source is the first version of a registry and whose target is
// the last one: nothing has a place for those in between.
func worldOf(t *testing.T, r *transform.Registry) *world {
	t.Helper()
	return worldOn(t, r, memstore.Options{Lag: 3})
}

// worldOn is worldOf with a source that has the options. The target's collections of those
// names are there, behind a validator, as a switch leaves them.
func worldOn(t *testing.T, r *transform.Registry, source memstore.Options, left ...string) *world {
	t.Helper()
	return worldBetween(t, r, source, memstore.Options{Start: 1 << 20}, left...)
}

// worldBetween is worldOn with a target that has options, too. The kinds with fixed names in the
// source hold one record each.
func worldBetween(t *testing.T, r *transform.Registry, source, target memstore.Options, left ...string) *world {
	t.Helper()
	w := &world{
		t: t, coord: memcoord.New(),
		src: memstore.NewCluster(source).Open("old"),
		dst: memstore.NewCluster(target).Open("new"),
	}
	vs := r.Versions()
	from, to := vs[0], vs[len(vs)-1]
	var err error
	w.dir, err = r.Direction(from, to)
	w.check(err)
	for _, k := range w.dir.SourceKinds() {
		if k.Fixed {
			w.check(w.src.Foreign().Insert(t.Context(), k.Name, mutation(k.Name, "made", 1).Doc))
		}
	}
	w.store = deployment.New(w.coord, name, deployment.Config{})
	d, err := w.store.Create(t.Context(), from, ring)
	w.check(err)
	for v, side := range map[string]struct {
		ns    record.Namespace
		kinds []record.KindSpec
	}{from: {w.src, w.dir.SourceKinds()}, to: {w.dst, w.dir.TargetKinds()}} {
		d, class := d, record.FenceClass("")
		if v == to && len(left) > 0 {
			d.CurrentVersion, class = v, record.FenceValidator
			for _, name := range left {
				w.check(w.dst.Foreign().Insert(t.Context(), name, mutation(name, "left", 1).Doc))
			}
		}
		made, err := syncer.Provision(t.Context(), side.ns, d, v, "mem:"+v, side.kinds, func(string) record.FenceClass { return class })
		w.check(err)
		w.apply(upgradestate.AnnounceNamespace{Namespace: made})
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: to, TransformHash: w.dir.Hash(), Precopied: true}})
	w.drive()
	return w
}

// calls counts the records that an engine reads and writes, and notes which kinds it
// scans.
type calls struct {
	record.Namespace
	mu                                    sync.Mutex
	scanned, read, loaded, applied, reads int
	kinds                                 map[string]bool
}

func (c *calls) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *calls) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	p, err := c.Namespace.Scan(ctx, req)
	c.note(func() { c.scanned += len(p.Records); c.kinds[req.Token.Kind] = true })
	return p, err
}

func (c *calls) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	s, err := c.Namespace.Read(ctx, req)
	c.note(func() { c.read += len(s.Records); c.reads++ })
	return s, err
}

func (c *calls) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	c.note(func() { c.loaded += len(b.Groups) })
	return c.Namespace.Load(ctx, b)
}

func (c *calls) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	c.note(func() { c.applied += len(b.Groups) })
	return c.Namespace.Apply(ctx, b)
}

func (c *calls) taken() [5]int {
	var out [5]int
	c.note(func() {
		out = [5]int{c.scanned, c.read, c.loaded, c.applied, c.reads}
		c.scanned, c.read, c.loaded, c.applied, c.reads = 0, 0, 0, 0, 0
	})
	return out
}

// everything is what a store holds of a kind, by name.
func (w *world) everything(ns record.Namespace, version, kind string) map[string]bson.Raw {
	w.t.Helper()
	out := map[string]bson.Raw{}
	now, err := ns.Position(w.t.Context())
	w.check(err)
	for rest, done := (record.Range{}), false; !done; {
		p, err := ns.Scan(w.t.Context(), record.ScanRequest{Token: w.tokens(version)[kind], Range: rest, Limit: 100, NotBefore: now.At})
		if errors.Is(err, record.ErrFenced) { // the target was renamed in between
			<-time.After(time.Millisecond)
			continue
		}
		w.check(err)
		for _, r := range p.Records {
			out[r.Key.String()] = r.Doc
		}
		rest.From, done = p.Next, p.Done
	}
	return out
}

// rekey is a transformer of single records that puts a prefix before their names, and
// adds to n.
func rekey(from, to, prefix string, plus int) transform.Spec {
	name := func(k record.Key) string { n, _ := k.Name(); return n }
	move := func(kind string, plus int, rename func(string) string) transform.Func {
		return func(src, _ transform.Group) (out []record.Record, _ error) {
			for _, r := range src.Records {
				it := itemOf(r)
				m := mutation(kind, rename(it.ID), it.N+plus)
				out = append(out, record.Record{Kind: kind, Key: m.Key, Doc: m.Doc})
			}
			return out, nil
		}
	}
	return transform.Spec{
		Name: from, Revision: "1",
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: from}}}},
		New: transform.Side{
			Anchor: func(g string) (string, record.Key) { return to, record.StringKey(prefix + name(record.Key(g))) },
			Kinds: []transform.GroupedKind{{
				KindSpec: record.KindSpec{Name: to}, Single: true,
				GroupOf: func(k record.Key) (string, error) {
					rest, ok := strings.CutPrefix(name(k), prefix)
					if !ok {
						return "", fmt.Errorf("no %s", prefix)
					}
					return string(record.StringKey(rest)), nil
				},
				Select: func(g string) record.Selector {
					return record.Selector{Key: record.StringKey(prefix + name(record.Key(g)))}
				},
			}},
		},
		Up:   move(to, plus, func(s string) string { return prefix + s }),
		Down: move(from, -plus, func(s string) string { return strings.TrimPrefix(s, prefix) }),
	}
}

// An upgrade over a version that has no place: copied, followed and deleted, each record
// read once from the old version and written once to the new one.
func TestChainIsSyncedInOneGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := transform.NewRegistry("items")
		steps := []transform.Spec{rekey("a1", "a2", "x/", 1), rekey("a2", "a3", "y/", 10), rekey("a3", "a4", "", 100)}
		for i, s := range steps {
			if err := r.Add(fmt.Sprint("v", i+1), fmt.Sprint("v", i+2), s); err != nil {
				t.Fatal(err)
			}
		}
		w := worldOf(t, r)
		target := func(key string) int {
			doc, ok := w.everything(w.dst, "v4", "a4")[key]
			if !ok {
				return -1
			}
			return itemOf(record.Record{Doc: doc}).N
		}
		const n = 50
		for i := range n {
			w.put("a1", fmt.Sprint("item-", i), i)
		}
		src, dst := &calls{Namespace: w.src, kinds: map[string]bool{}}, &calls{Namespace: w.dst, kinds: map[string]bool{}}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source, p.Target = src, dst })
		w.eventually("the copy", func() bool { return len(e.engine.Progress()) == ring && e.synced() })
		if got, want := src.taken(), [5]int{n, 0, 0, 0, 0}; got != want {
			t.Errorf("the copy scanned and read %v of the source, want %v", got, want)
		}
		if got := dst.taken(); got[2] != n || got[3] != 0 {
			t.Errorf("the copy loaded and applied %v in the target", got)
		}
		w.put("a1", "item-3", 1003)
		w.eventually("a change", func() bool { return target("y/x/item-3") == 1114 })
		if got, want := src.taken(), [5]int{0, 1, 0, 0, 1}; got != want {
			t.Errorf("a change scanned and read %v of the source, want %v", got, want)
		}
		if got := dst.taken(); got[2] != 0 || got[3] != 1 {
			t.Errorf("a change loaded and applied %v in the target", got)
		}
		w.check(w.src.Write(t.Context(), w.tokens("v1"), []record.Mutation{{Kind: "a1", Key: record.StringKey("item-4")}}))
		w.eventually("a delete", func() bool { return target("y/x/item-4") == -1 })
		w.put("a1", "new", 5)
		w.eventually("a new record", func() bool { return target("y/x/new") == 116 })
		<-time.After(5 * time.Second)
		e.stop(t)
		old, fresh := w.everything(w.src, "v1", "a1"), w.everything(w.dst, "v4", "a4")
		if len(old) != n || len(fresh) != n {
			t.Errorf("%d records became %d", len(old), len(fresh))
		}
		for name, doc := range old {
			if got := fresh["y/x/"+name]; itemOf(record.Record{Doc: got}).N != itemOf(record.Record{Doc: doc}).N+111 {
				t.Errorf("%s: %s became %s", name, doc, got)
			}
		}
		if parked, err := w.store.Parked(t.Context(), syncer.Key(1, w.dir, 0), -1); err != nil || len(parked) != 0 {
			t.Errorf("parked %v, %v", parked, err)
		}
	})
}

// A kind that the new version does not have: not read, not written, changes to it do not
// park anything; but it is fenced, and the switch waits until that was seen.
func TestDiscontinuedKindIsFencedAndUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := transform.NewRegistry("items")
		gone := transform.Spec{Name: "gone", Discontinued: true, Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "gone1"}}}}}
		if err := r.Add("v1", "v2", rekey("a1", "a2", "x/", 1), gone); err != nil {
			t.Fatal(err)
		}
		w := worldOf(t, r)
		w.put("a1", "item", 1)
		for i := range 20 {
			w.put("gone1", fmt.Sprint("item-", i), i)
		}
		src := &calls{Namespace: w.src, kinds: map[string]bool{}}
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) { p.Source = src })
		w.begin()
		w.eventually("ready", w.allReady)
		w.put("gone1", "late", 1)
		w.put("a1", "late", 1)
		w.eventually("a change of the other kind", func() bool { return w.target("a2", "x/late") == 2 })
		if parked := w.parked(); len(parked) != 0 {
			t.Errorf("parked %v", parked)
		}
		before := w.everything(w.src, "v1", "gone1")
		w.apply(upgradestate.StartSwitch{ID: "u"})
		w.apply(upgradestate.Held{ID: "u"})
		stale := w.tokens("v1")
		first, second := w.fence("a1"), w.fence("gone1")
		w.apply(first)
		<-time.After(3 * time.Second)
		if got := w.ready(); len(got) != 0 {
			t.Errorf("shards %v are drained before the discontinued kind's fence is confirmed", got)
		}
		w.apply(second)
		w.eventually("drain", w.allReady)
		if err := w.src.Write(t.Context(), stale, []record.Mutation{mutation("gone1", "item-1", 7)}); err == nil {
			t.Error("a discontinued kind can be written after the switch")
		}
		e.stop(t)
		if after := w.everything(w.src, "v1", "gone1"); !maps.EqualFunc(before, after, func(a, b bson.Raw) bool { return slices.Equal(a, b) }) || len(after) != 21 {
			t.Errorf("%d records of the discontinued kind became %d, or others", len(before), len(after))
		}
		if src.kinds["gone1"] || !src.kinds["a1"] {
			t.Errorf("scanned %v", src.kinds)
		}
		for _, p := range e.engine.Progress() {
			if p.Total > 1 {
				t.Errorf("shard %d has %d records to copy: the discontinued ones count", p.Shard, p.Total)
			}
		}
	})
}
