package identity_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// noted is a coordination store that keeps beats.
type noted struct {
	mu   sync.Mutex
	of   map[string]identity.Beat
	lose bool   // the process dies before it has noted what it wrote
	name string // its incarnation of the deployment
	// loaded counts the loads.
	loaded int
}

var errDied = errors.New("it died")

func (n *noted) LoadBeat(_ context.Context, version string) (identity.Beat, string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loaded++
	return n.of[version], n.name, nil
}

func (n *noted) SaveBeat(_ context.Context, version string, b identity.Beat) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lose {
		return errDied
	}
	if n.of == nil {
		n.of = map[string]identity.Beat{}
	}
	if n.of[version].Count < b.Count {
		n.of[version] = b
	}
	return nil
}

func (n *noted) AdvanceBeat(_ context.Context, version, incarnation string, from, to identity.Beat) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lose {
		return false, errDied
	}
	ok := n.of[version] == from && n.name == incarnation
	if ok {
		n.of[version] = to
	}
	return ok, nil
}

// backedUp is a database whose beats are brought back to those of a backup.
type backedUp struct {
	record.Marker
	mu   sync.Mutex
	from map[record.Owner]record.Mark // nil: it was not restored
}

func (b *backedUp) Marks(ctx context.Context) ([]record.Mark, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from == nil {
		return b.Marker.Marks(ctx)
	}
	var all []record.Mark
	for _, m := range b.from {
		all = append(all, m)
	}
	return all, nil
}

func (b *backedUp) PutMark(ctx context.Context, m record.Mark) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from == nil {
		return b.Marker.PutMark(ctx, m)
	}
	if has := b.from[m.Owner]; has.Rev != m.Rev || m.Was != nil && !bytes.Equal(has.Body, m.Was) {
		return record.ErrMismatch
	}
	m.Rev++
	m.Was = nil
	b.from[m.Owner] = m
	return nil
}

func (b *backedUp) backup(t *testing.T) map[record.Owner]record.Mark {
	t.Helper()
	marks, err := b.Marks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[record.Owner]record.Mark{}
	for _, m := range marks {
		out[m.Owner] = m
	}
	return out
}

func (b *backedUp) restore(from map[record.Owner]record.Mark) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from = map[record.Owner]record.Mark{}
	for o, m := range from {
		b.from[o] = m
	}
}

// TestBeats restores a database at each place of a life in which two processes count: each of them
// notices, whatever it remembers, and goes on noticing until the restored state is accepted.
func TestBeats(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for beats := range 5 {
		for n := range 4 {
			dies, name := n%2 == 1, []string{"", "an etcd"}[n/2] // without a name, each beat loads
			t.Run(fmt.Sprintf("%d later, dies %t, etcd %q", beats, dies, name), func(t *testing.T) {
				t.Parallel()
				etcd := &noted{name: name}
				db := &backedUp{Marker: memstore.NewCluster(memstore.Options{}).Open("v2")}
				owner := record.Owner{Deployment: deploymentName, Version: "v2"}
				process := func() *identity.Pulse { return &identity.Pulse{Owner: owner, DB: db, Beats: etcd} }
				one, two := process(), process()
				count := func(p *identity.Pulse) {
					t.Helper()
					if err := p.Beat(ctx); err != nil {
						t.Fatal(err)
					}
				}
				count(one)
				count(two)
				count(one)
				at := db.backup(t)
				for i := range beats {
					count([]*identity.Pulse{one, two}[i%2])
				}
				if dies { // after it wrote to the database alone
					etcd.lose = true
					if err := two.Beat(ctx); !errors.Is(err, errDied) {
						t.Fatal(err)
					}
					etcd.lose = false
				}
				db.restore(at)
				var restored *identity.RestoredError
				for i := range 4 {
					p := []*identity.Pulse{one, two, process()}[i%3]
					err := p.Beat(ctx)
					if beats == 0 {
						if err != nil {
							t.Fatalf("nothing was noted since the backup: %v", err)
						}
						continue
					}
					if !errors.As(err, &restored) || restored.Version != "v2" || restored.Has != 3 || restored.Wanted != 3+uint64(beats) {
						t.Fatalf("beat %d after the restore: %v", i, err)
					}
				}
				if beats == 0 {
					return
				}
				if err := two.Accept(ctx); err != nil {
					t.Fatal(err)
				}
				count(one)
				count(process())
				db.restore(at) // once more
				if err := one.Beat(ctx); !errors.As(err, &restored) {
					t.Errorf("the second restore is not seen: %v", err)
				}
			})
		}
	}
}

// TestBeatsWithoutLoad: a process that alone counts does not load the beat from etcd. It still notices
// all that happens elsewhere, at the same beat at which a load would show it.
func TestBeatsWithoutLoad(t *testing.T) {
	t.Parallel()
	owner := record.Owner{Deployment: deploymentName, Version: "v2"}
	for name, c := range map[string]struct {
		happens func(t *testing.T, etcd *noted, db *backedUp)
		want    func(error) bool
	}{
		"nothing": {func(*testing.T, *noted, *backedUp) {}, func(err error) bool { return err == nil }},
		"another process counts, and the database is restored to the beat before": {func(t *testing.T, etcd *noted, db *backedUp) {
			at := db.backup(t)
			if err := (&identity.Pulse{Owner: owner, DB: db, Beats: etcd}).Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			db.restore(at)
		}, func(err error) bool { var e *identity.RestoredError; return errors.As(err, &e) }},
		"another process counts": {func(t *testing.T, etcd *noted, db *backedUp) {
			if err := (&identity.Pulse{Owner: owner, DB: db, Beats: etcd}).Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, func(err error) bool { return err == nil }},
		"the database is restored, accepted, and counts up to the same revision": {func(t *testing.T, etcd *noted, db *backedUp) {
			other := &identity.Pulse{Owner: owner, DB: db, Beats: etcd}
			count := func() {
				t.Helper()
				if err := other.Beat(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			at := db.backup(t)
			b := at[identity.BeatOwner(owner)]
			b.Rev -= 2 // made two beats before
			at[identity.BeatOwner(owner)] = b
			count()
			db.restore(at)
			if err := other.Accept(t.Context()); err != nil {
				t.Fatal(err)
			}
			count()
		}, func(err error) bool { return err == nil }},
		"etcd is set up anew": {func(_ *testing.T, etcd *noted, _ *backedUp) {
			etcd.of, etcd.name = nil, "another"
		}, func(err error) bool { var e *identity.ElsewhereError; return errors.As(err, &e) }},
		"etcd is restored": {func(_ *testing.T, etcd *noted, _ *backedUp) {
			etcd.of = map[string]identity.Beat{"v2": {Count: 1, Nonce: "earlier"}}
		}, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := &noted{name: "an etcd"}
			db := &backedUp{Marker: memstore.NewCluster(memstore.Options{}).Open("v2")}
			p := &identity.Pulse{Owner: owner, DB: db, Beats: etcd}
			for range 3 {
				if err := p.Beat(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if etcd.loaded != 1 {
				t.Errorf("3 beats loaded %d times, want 1", etcd.loaded)
			}
			c.happens(t, etcd, db)
			if err := p.Beat(t.Context()); !c.want(err) {
				t.Errorf("the next beat: %v", err)
			}
			fresh := &identity.Pulse{Owner: owner, DB: db, Beats: etcd}
			if err := fresh.Look(t.Context()); !c.want(err) {
				t.Errorf("another process sees: %v", err)
			}
		})
	}
}

// TestForgedBeats: a login that can write marks cannot have the counts overflow. Such a beat is refused
// in words, and counting goes on from the coordination store's once it is accepted.
func TestForgedBeats(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]any{
		"the largest but one": int64(1<<63 - 2), "the largest": int64(1<<63 - 1), "far ahead": int64(1<<40 + 4), "negative": int64(-1), "no number": "many",
	} {
		for _, forgotten := range []bool{false, true} { // as by recover
			t.Run(fmt.Sprintf("%s, forgotten %t", name, forgotten), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				etcd := &noted{}
				db := memstore.NewCluster(memstore.Options{}).Open("v2")
				p := &identity.Pulse{Owner: record.Owner{Deployment: deploymentName, Version: "v2"}, DB: db, Beats: etcd}
				for range 3 {
					if err := p.Beat(ctx); err != nil {
						t.Fatal(err)
					}
				}
				body, err := bson.Marshal(bson.D{{Key: "format", Value: 1}, {Key: "count", Value: count}, {Key: "nonce", Value: "x"}})
				if err != nil {
					t.Fatal(err)
				}
				if err := db.PutMark(ctx, record.Mark{Owner: identity.BeatOwner(p.Owner), Rev: 3, Body: body}); err != nil {
					t.Fatal(err)
				}
				fresh := &identity.Pulse{Owner: p.Owner, DB: db, Beats: etcd}
				for i, try := range []func(context.Context) error{p.Beat, fresh.Look, fresh.Beat, p.Beat} {
					var forged *identity.ForgedBeatError
					if err := try(ctx); !errors.As(err, &forged) || forged.Known != 3 {
						t.Errorf("step %d: %v", i, err)
					}
				}
				known := etcd.of["v2"].Count
				if known != 3 {
					t.Errorf("etcd knows of beat %d, want 3", known)
				}
				if forgotten {
					etcd.of, known = nil, 0
				}
				if err := fresh.Accept(ctx); err != nil {
					t.Fatal(err)
				}
				for _, p := range []*identity.Pulse{p, fresh} {
					if err := p.Beat(ctx); err != nil {
						t.Error(err)
					}
				}
				if got := etcd.of["v2"].Count; got != known+3 {
					t.Errorf("it counts on at %d, want %d", got, known+3)
				}
			})
		}
	}
}

// TestBeatsOfOneCount: after a restore a count comes again, and is not taken for the one before.
func TestBeatsOfOneCount(t *testing.T) {
	t.Parallel()
	etcd := &noted{}
	db := &backedUp{Marker: memstore.NewCluster(memstore.Options{}).Open("v2")}
	p := &identity.Pulse{Owner: record.Owner{Deployment: deploymentName, Version: "v2"}, DB: db, Beats: etcd}
	if err := p.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := db.backup(t)
	if err := p.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := etcd.of["v2"]
	db.restore(at)
	// Somebody who did not know of the second beat has counted.
	late := &identity.Pulse{Owner: p.Owner, DB: db, Beats: &noted{of: map[string]identity.Beat{}}}
	if err := late.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	var restored *identity.RestoredError
	fresh := &identity.Pulse{Owner: p.Owner, DB: db, Beats: etcd}
	if err := fresh.Beat(t.Context()); !errors.As(err, &restored) || restored.Has != known.Count {
		t.Errorf("beat %d was made anew: %v", known.Count, err)
	}
}

// TestTwoStores: the database belongs to the coordination store that counts in it first, until
// the other one accepts it. A backup from before that is a restored one, not one of others.
func TestTwoStores(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := &backedUp{Marker: memstore.NewCluster(memstore.Options{}).Open("v2")}
	owner := record.Owner{Deployment: deploymentName, Version: "v2"}
	pulse := func(etcd *noted) *identity.Pulse { return &identity.Pulse{Owner: owner, DB: db, Beats: etcd} }
	older, first, second := &noted{}, &noted{name: "first"}, &noted{name: "second"}
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		var elsewhere *identity.ElsewhereError
		if !errors.As(err, &elsewhere) || elsewhere.Version != "v2" || !errors.Is(err, record.ErrBroken) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	ok("a store without an incarnation", pulse(older).Beat(ctx))
	long := pulse(first)
	ok("the first store", long.Beat(ctx))
	backup := db.backup(t)
	refused("the second one", pulse(second).Beat(ctx))
	refused("and a look", pulse(second).Look(ctx))
	ok("the first one goes on", long.Beat(ctx))
	ok("the second one takes it over", pulse(second).Accept(ctx))
	refused("the first one, which remembers its own beat", long.Beat(ctx))
	refused("and a fresh process of it", pulse(first).Beat(ctx))
	ok("the second one goes on", pulse(second).Beat(ctx))
	db.restore(backup)
	var restored *identity.RestoredError
	if err := pulse(second).Beat(ctx); !errors.As(err, &restored) {
		t.Errorf("a backup from before: %v", err)
	}
}

// TestReform: the collections of a restored database are taken over under the names that it has,
// and one that it does not have is made.
func TestReform(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceValidator)
	ctx := t.Context()
	ns, _ := w.d.Namespace("v2")
	k, _ := ns.Kind("accounts")
	moved := record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}
	w.ok(w.db["v2"].Fence(ctx, record.Fence{Class: record.FenceUUID, Token: moved, To: "accounts.n7"}))
	p, _ := ns.Kind("packages")
	w.ok(w.db["v2"].Drop(ctx, record.Token{Kind: p.Kind, Name: p.Physical, ID: p.ID, Fixed: true}))
	made := ""
	reform := identity.Reform{
		Deployments: w,
		Apply: func(_ context.Context, e upgradestate.Event) error {
			w.apply(e)
			return nil
		},
		Make: func(ctx context.Context, _ upgradestate.Deployment, version string, k upgradestate.Kind) (record.Token, error) {
			made = k.Kind
			return w.db[version].Provision(ctx, record.KindSpec{Name: k.Kind, Fixed: k.Fixed}, record.PhysicalName(k.Kind, k.NextSeq))
		},
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h", Precopied: true}})
	w.ok(reform.Do(ctx, "v2", w.db["v2"], "restored"))
	if made != "packages" {
		t.Errorf("made anew is %q", made)
	}
	if err := w.check(); err != nil {
		t.Errorf("taken over: %v", err)
	}
	noted := map[string]bool{}
	for w.step(noted) != "" {
	}
	if err := w.check(); err != nil {
		t.Errorf("and moved: %v", err)
	}
	is, _ := w.d.Namespace("v2")
	if is.Images.Generation != 1 {
		t.Errorf("images are %+v", is.Images)
	}
	// A database that is another one is lost, and not restored.
	var mismatch *identity.MismatchError
	other := memstore.NewCluster(memstore.Options{}).Open("v2")
	if err := reform.Do(ctx, "v2", other, "restored"); !errors.As(err, &mismatch) {
		t.Errorf("another database: %v", err)
	}
}
