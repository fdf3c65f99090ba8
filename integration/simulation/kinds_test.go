package simulation_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// kindCrowd is writers of families. Any of them writes any record, one at a time each;
// parts of a group are written at the same time.
type kindCrowd struct {
	*crowd
	groups sync.Map    // of *groupLock
	whole  atomic.Bool // from now on no child is without its parent
}

// groupLock is never waited for, since who holds it may be held by a switch: a writer
// that does not get it does something else.
type groupLock struct {
	sync.RWMutex
	parts sync.Map // of *sync.Mutex
}

func (c *kindCrowd) lock(f family, group string) *groupLock {
	l, _ := c.groups.LoadOrStore(f.parent+"/"+group, &groupLock{})
	return l.(*groupLock)
}

const groupsOfFamily = 5

// draw writes or deletes a part of a group, or the whole of it.
func (c *kindCrowd) draw(rng *rand.Rand, n int64) bool {
	f := families[rng.IntN(len(families))]
	group := fmt.Sprintf(f.name, rng.IntN(groupsOfFamily))
	l := c.lock(f, group)
	if op := rng.IntN(10); op < 2 {
		if !l.TryLock() {
			return true
		}
		defer l.Unlock()
		return c.send(rng, c.all(rng, f, group, n, op == 0))
	}
	if !l.TryRLock() {
		return true
	}
	defer l.RUnlock()
	child := ""
	if i := rng.IntN(len(f.children) + 1); i > 0 {
		child = f.children[i-1]
	}
	kind, id := f.part(group, child)
	part, _ := l.parts.LoadOrStore(kind+"/"+id, &sync.Mutex{})
	if m := part.(*sync.Mutex); m.TryLock() {
		defer m.Unlock()
		remove := rng.IntN(4) == 0
		if whole := f.orphans && c.whole.Load(); whole && child == "" && remove || whole && child != "" && !c.has(f.parent, group) {
			return true
		}
		return c.send(rng, []change{c.change(rng, f, group, child, n, remove)})
	}
	return true
}

func (c *kindCrowd) has(kind, id string) bool { return c.get(kind, id).ID != "" }

func (c *kindCrowd) change(rng *rand.Rand, f family, group, child string, n int64, remove bool) change {
	kind, id := f.part(group, child)
	v := oldThing{ID: id}
	if remove {
		return change{Kind: kind, Delete: true, Thing: v}
	}
	v.N = n
	if v.In = id[strings.LastIndex(id, "/")+1:]; child == "" {
		v.In = fmt.Sprintf("first%d last%d", rng.IntN(9), n)
		for _, i := range rng.Perm(len(f.out))[:rng.IntN(len(f.out)+1)] {
			v.Out = append(v.Out, f.out[i])
		}
	}
	return change{Kind: kind, Thing: v}
}

// all is every part of a group at once.
func (c *kindCrowd) all(rng *rand.Rand, f family, group string, n int64, remove bool) []change {
	cs := []change{c.change(rng, f, group, "", n, remove)}
	for _, child := range f.children {
		cs = append(cs, c.change(rng, f, group, child, n, remove || rng.IntN(3) == 0))
	}
	return cs
}

func (c *kindCrowd) drive(ctx context.Context, seed uint64, writers int, interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for n := int64(1); ctx.Err() == nil && c.draw(rng, n); n++ {
				select {
				case <-ctx.Done():
				case <-time.After(interval):
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// mend gives every child its parent, or deletes it, and lets no further orphan come about.
func (c *kindCrowd) mend(rng *rand.Rand) {
	c.whole.Store(true)
	for i := range groupsOfFamily {
		group := fmt.Sprintf(books.name, i)
		l := c.lock(books, group)
		for !l.TryLock() {
			pass(time.Millisecond)
		}
		if !c.has(books.parent, group) {
			c.send(rng, c.all(rng, books, group, 0, i == 0))
		}
		l.Unlock()
	}
}

// scan reads all records of a version, by kind and name.
func (s *system) scan(ctx context.Context, version string) (map[string]record.Record, record.Tokens) {
	d, err := s.admin.Get(ctx)
	s.check(err)
	ns, _ := d.Namespace(version)
	all, toks := map[string]record.Record{}, record.Tokens{}
	for _, k := range ns.Kinds {
		toks[k.Kind] = record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}
		page, err := s.db[version].Scan(ctx, record.ScanRequest{Token: toks[k.Kind], Limit: 1 << 20, NotBefore: s.now(ctx, version)})
		s.check(err)
		for _, r := range page.Records {
			r.Kind = k.Kind
			all[k.Kind+"/"+r.Key.String()] = r
		}
	}
	return all, toks
}

// settle compares the old namespace with everything that was acknowledged, and the new
// one with the transformation of the whole old one, record by record and byte by byte.
func (c *kindCrowd) settle(ctx context.Context, s *system) {
	c.t.Helper()
	old, oldToks := s.scan(ctx, "v1")
	now, newToks := s.scan(ctx, "v2")
	for key, v := range c.things {
		if !bytes.Equal(old[key].Doc, must(bson.Marshal(v))) {
			c.t.Errorf("the old %s is %s, want %+v", key, old[key].Doc, v)
		}
	}
	if len(old) != len(c.things) || len(old) == 0 {
		c.t.Errorf("%d records in the old namespace, want %d", len(old), len(c.things))
	}
	dir := s.direction()
	groups, held := map[transform.GroupID][]record.Record{}, map[transform.GroupID][]record.Record{}
	for _, r := range old {
		id, _, err := dir.GroupOf(r.Kind, r.Key)
		s.check(err)
		groups[id] = append(groups[id], r)
	}
	for _, r := range now {
		id, _, err := dir.GroupOfTarget(r.Kind, r.Key)
		s.check(err)
		held[id] = append(held[id], r)
	}
	want := 0
	for id, rs := range groups {
		transform.SortRecords(rs)
		transform.SortRecords(held[id])
		src := transform.Group{Name: id.Name, Records: rs}
		// Putting the group into what is there changes nothing, and what is there is what
		// the group alone would have made.
		over := must(dir.Transform(id, src, transform.Group{Name: id.Name, Records: held[id]}))
		c.same(held[id], over)
		c.same(settled(held[id]), settled(must(dir.Transform(id, src, transform.Group{Name: id.Name}))))
		want += len(over)
	}
	if len(now) != want {
		c.t.Errorf("%d records in the new namespace, want %d", len(now), want)
	}
	rep, err := verify.New(s.db["v1"], s.db["v2"], dir).Run(ctx, s.view(ctx, "v1", oldToks), s.view(ctx, "v2", newToks), verify.Recheck{Tries: 1}, nil)
	if err != nil || rep.Mismatched != 0 || rep.Compared == 0 {
		c.t.Errorf("verify: %+v, %v", rep, err)
	}
}

// same compares the records of a group.
func (c *kindCrowd) same(have, want []record.Record) {
	c.t.Helper()
	show := func(rs []record.Record) string {
		var b strings.Builder
		for _, r := range rs {
			fmt.Fprintf(&b, "\n%s %s %s %x", r.Kind, r.Key, r.Doc, []byte(r.Doc))
		}
		return b.String()
	}
	if h, w := show(have), show(want); h != w {
		c.t.Errorf("the new namespace has%s\nwant%s", h, w)
	}
}

// settled takes away what a record keeps of what it was before: an item its place when
// another one is taken out of the list, so that alone it would have a lower one, and a
// book the order of its gathered fields, which is that in which they first came.
func settled(rs []record.Record) []record.Record {
	rs = slices.Clone(rs)
	fields := func(r record.Record) (d bson.D) {
		if err := bson.Unmarshal(r.Doc, &d); err != nil {
			panic(err)
		}
		return d
	}
	var items []*record.Record
	for i := range rs {
		switch r := &rs[i]; {
		case strings.HasPrefix(r.Kind, "items"):
			items = append(items, r)
		case strings.HasPrefix(r.Kind, "books"):
			d := fields(*r)
			slices.SortFunc(d, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
			r.Doc = must(bson.Marshal(d))
		}
	}
	place := func(r *record.Record) int64 { return r.Doc.Lookup("position").AsInt64() }
	slices.SortFunc(items, func(a, b *record.Record) int { return cmp.Compare(place(a), place(b)) })
	for rank, r := range items {
		d := fields(*r)
		d[slices.IndexFunc(d, func(e bson.E) bool { return e.Key == "position" })].Value = int32(rank)
		r.Doc = must(bson.Marshal(d))
	}
	return rs
}

// idle writes groups that no writer touches, so that nothing hides what came of them.
func (c *kindCrowd) idle(rng *rand.Rand, n int64) {
	for _, f := range families {
		for i := range 4 {
			c.send(rng, c.all(rng, f, fmt.Sprintf(f.name, 90+i), n, false))
		}
	}
}

// idleDrowsy sleeps over groups of idle, which have a 9 in their names.
type idleDrowsy struct {
	record.Namespace
	drowsy drowsy
}

func (n idleDrowsy) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if slices.ContainsFunc(b.Groups, func(g record.GroupWrite) bool { return strings.Contains(g.Group, "9") }) {
		n.drowsy.sleep()
		ctx = context.WithoutCancel(ctx) // it was sent before the lease was lost
	}
	return n.Namespace.Apply(ctx, b)
}

// TestKindsUnderTraffic: groups by name of every kind of transformer, in one step and in
// two that run as one, whose writers write, delete and make again their parts and whole
// groups while they are copied, followed and switched.
func TestKindsUnderTraffic(t *testing.T) {
	for name, registry := range map[string]func() *transform.Registry{"one step": kindsRegistry, "chain": chainRegistry} {
		for seed := range seeds(4) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				if name == "one step" {
					raced.Leave(t)
				}
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { kindsUnderTraffic(t, seed, registry()) })
			})
		}
	}
}

func kindsUnderTraffic(t *testing.T, seed uint64, r *transform.Registry) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rng := rand.New(rand.NewPCG(seed, 99))
	s := newSystemOf(ctx, t, memory(), r, contentStack)
	s.oneWay = true // jobs have no rollback
	s.maxRate = 30
	a, pa := s.server(ctx, "server-a", nil)
	b, pb := s.server(ctx, "server-b", nil)
	c := &kindCrowd{crowd: newCrowd(t, a, b)}
	stop := c.drive(ctx, seed, 4, 10*time.Millisecond)
	pass(time.Second)
	// Every command takes a while, in which the writers go on.
	slow := func(ns record.Namespace) record.Namespace {
		return faultstore.Wrap(ns, faultstore.When(faultstore.Always(faultstore.Fault{Latency: time.Millisecond}),
			func(op faultstore.Op) bool { return op.Command != faultstore.Next }))
	}
	d := drowsy{asleep: &atomic.Bool{}, waiting: &atomic.Int64{}, wake: make(chan struct{})}
	wake := sync.OnceFunc(func() { close(d.wake) })
	defer wake()
	c1 := s.controller(ctx, "controller-1", func(version string, ns record.Namespace) record.Namespace {
		if version == "v1" {
			return slow(ns)
		}
		return idleDrowsy{slow(ns), d}
	})
	pass(100 * time.Millisecond)
	c2 := s.controller(ctx, "controller-2", func(_ string, ns record.Namespace) record.Namespace { return slow(ns) })
	s.begin(ctx)
	// A child that waits for its parent is listed until it comes, and blocks the switch.
	c.send(rng, []change{c.change(rng, books, "late", "pages1/x", 1, false)})
	pass(2 * time.Second)
	parked, err := s.admin.ParkedNow(ctx)
	s.check(err)
	late := slices.IndexFunc(parked, func(p syncer.Parked) bool { return strings.HasPrefix(p.Key, "late") })
	if late < 0 {
		t.Fatalf("the page without a book is not parked: %+v", parked)
	}
	// The first controller holds what it has made until the other one has taken over and
	// the switch has begun.
	d.asleep.Store(true)
	c.idle(rng, 1)
	for d.waiting.Load() == 0 {
		pass(time.Millisecond)
	}
	c1.conn.Pause()
	c.idle(rng, 2)
	pass(5 * time.Second)
	c.mend(rng)
	pass(time.Second)
	c.send(rng, []change{c.change(rng, books, "late", "", 2, false)})
	s.await(ctx, "the switch", func(d upgradestate.Deployment) bool {
		return d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
	})
	d.asleep.Store(false)
	wake()
	c1.conn.Heal()
	s.await(ctx, "the flip", active("v2"))
	pass(time.Second)
	stop()
	if !c.over || c.acked < 400 {
		t.Errorf("%d changes were acknowledged, v2 was met: %t", c.acked, c.over)
	}
	c.settle(ctx, s)
	if left, err := s.admin.Parked(ctx, parked[late].Direction, -1); err != nil || len(left) > 0 {
		t.Errorf("parked: %+v, %v", left, err)
	}
	cancel()
	for _, p := range []*process{pa, pb, c1, c2} {
		p.kill()
	}
}
