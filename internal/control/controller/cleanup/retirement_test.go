package cleanup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// retiring is a deployment that has left v1, which is being retired, and its collections kept
// until a time.
func retiring(t *testing.T, until string) (Retirement, *memstore.Store, *memcoord.Store, upgradestate.Deployment) {
	t.Helper()
	const name = "services/a/deployments/b"
	c := memcoord.New()
	rt := Retirement{
		Deployments: deployment.New(c, name, deployment.Config{}), Namespaces: map[string]record.Namespace{},
		Scratch: func(string) Space { return nil }, Log: zap.NewNop(),
	}
	if _, err := rt.Deployments.Create(t.Context(), "v2", 4); err != nil {
		t.Fatal(err)
	}
	old := memstore.New()
	for version, db := range map[string]*memstore.Store{"v1": old, "v2": memstore.New()} {
		rt.Namespaces[version] = db
		ns := upgradestate.Namespace{Version: version, Location: "mem:" + version}
		for _, kind := range []string{"things", "dbc_lineage.x"} {
			tok, err := db.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
			if err != nil {
				t.Fatal(err)
			}
			ns.Kinds = append(ns.Kinds, upgradestate.Kind{Kind: kind, Physical: tok.Name, ID: tok.ID})
		}
		if _, err := rt.Deployments.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []syncer.DirectionKey{"1-v1-v2-h1", "2-v2-v1-h2", "2-v2-v3-h3"} {
		if _, err := rt.Deployments.CreatePlan(t.Context(), dir, syncer.Plan{}); err != nil {
			t.Fatal(err)
		}
		if err := rt.Deployments.Park(t.Context(), syncer.Parked{Direction: dir, Kind: "things", Key: "x", Group: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := rt.Deployments.Apply(t.Context(), upgradestate.Complete{Version: "v1", Until: until})
	if err != nil {
		t.Fatal(err)
	}
	return rt, old, c, d
}

// TestRetire fails at every act on the database in turn, as if the process had died there,
// and goes on. Nothing but what the record names is dropped.
func TestRetire(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for stop := range 4 {
			rt, old, c, d := retiring(t, "")
			strange, err := old.Provision(t.Context(), record.KindSpec{Name: "strange"}, "strange.n1")
			if err != nil {
				t.Fatal(err)
			}
			n, met := 0, false
			rt.Namespaces["v1"] = faultstore.Wrap(old, faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
				if op.Command != faultstore.Drop && op.Command != faultstore.Locate {
					return faultstore.Fault{}
				}
				if n++; n-1 != stop {
					return faultstore.Fault{}
				}
				met = true
				if after {
					return faultstore.Cut()
				}
				return faultstore.Down()
			}))
			if err := rt.retireVersion(t.Context(), d, *d.Retire); err == nil {
				t.Errorf("stop %d: it did not fail", stop)
			}
			if d, err = rt.Deployments.Get(t.Context()); err != nil || d.Retire == nil || !met {
				t.Errorf("stop %d: the record has forgotten it: %+v, %v", stop, d, err)
			}
			if err := rt.retireVersion(t.Context(), d, *d.Retire); err != nil {
				t.Fatal(err)
			}
			if d, err = rt.Deployments.Get(t.Context()); err != nil || d.Retire != nil || !upgradestate.Retired(d, "v1") {
				t.Errorf("stop %d: %+v, %v", stop, d, err)
			}
			for _, kind := range []string{"things", "dbc_lineage.x"} {
				info, err := old.Describe(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
				if err != nil || info.Exists {
					t.Errorf("stop %d: %s is still there, %v", stop, kind, err)
				}
			}
			if name, err := old.Locate(t.Context(), strange.ID); err != nil || name != "strange.n1" {
				t.Errorf("what is not in the record is gone: %q, %v", name, err)
			}
			kvs, _, err := c.List(t.Context(), rt.Deployments.Root())
			if err != nil {
				t.Fatal(err)
			}
			kept := 0
			for _, kv := range kvs {
				if strings.Contains(kv.Key, "-v2-v3-") {
					kept++
				} else if !strings.HasSuffix(kv.Key, "/record") {
					t.Errorf("%s is kept", kv.Key)
				}
			}
			if kept != 2 {
				t.Errorf("%d keys of another direction are kept, want 2", kept)
			}
		}
	}
}

// TestRetireSparesAnother: a collection that somebody has put in the place of one of the
// record's stays.
func TestRetireSparesAnother(t *testing.T) {
	t.Parallel()
	rt, old, _, d := retiring(t, "")
	ns, _ := d.Namespace("v1")
	k, _ := ns.Kind("things")
	if err := old.Drop(t.Context(), record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}); err != nil {
		t.Fatal(err)
	}
	other, err := old.Provision(t.Context(), record.KindSpec{Name: "things"}, k.Physical)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.retireVersion(t.Context(), d, *d.Retire); err != nil {
		t.Fatal(err)
	}
	if name, err := old.Locate(t.Context(), other.ID); err != nil || name != k.Physical {
		t.Errorf("the other collection is gone: %q, %v", name, err)
	}
	if _, err := old.Locate(t.Context(), k.ID); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// TestRetireWithoutIdentity: what only a person can drop is waited for, and not for ever.
func TestRetireWithoutIdentity(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	tok, err := db.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	k := upgradestate.Kind{Kind: "things", Physical: "things.n1"}
	if _, err := dropKind(t.Context(), db, k, ""); err == nil || !strings.Contains(err.Error(), "things.n1 by hand") {
		t.Errorf("while it is there: %v", err)
	}
	if name, err := db.Locate(t.Context(), tok.ID); err != nil || name != "things.n1" {
		t.Errorf("it was dropped: %q, %v", name, err)
	}
	if err := db.Drop(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if _, err := dropKind(t.Context(), db, k, ""); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}

// TestSetAside fails at every act on the database in turn, on the way to setting a version's
// collections aside and to dropping them. Until the drop their records can be read.
func TestSetAside(t *testing.T) {
	t.Parallel()
	kinds := []string{"things", "dbc_lineage.x"}
	for _, after := range []bool{false, true} {
		for stop := range 4 {
			rt, old, _, d := retiring(t, "2999-01-01T00:00:00Z")
			ns, _ := d.Namespace("v1")
			n := 0
			interrupt := func(commands ...faultstore.Command) {
				n = 0
				rt.Namespaces["v1"] = faultstore.Wrap(old, faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
					if !slices.Contains(commands, op.Command) {
						return faultstore.Fault{}
					}
					if n++; n-1 != stop {
						return faultstore.Fault{}
					}
					if after {
						return faultstore.Cut()
					}
					return faultstore.Down()
				}))
			}
			interrupt(faultstore.Locate, faultstore.Fence)
			if err := rt.retireVersion(t.Context(), d, *d.Retire); err == nil || n <= stop {
				t.Errorf("stop %d: it did not fail", stop)
			}
			if d, err := rt.Deployments.Get(t.Context()); err != nil || d.Retire == nil || len(d.Kept) > 0 {
				t.Fatalf("stop %d: the record has forgotten it: %+v, %v", stop, d, err)
			}
			if err := rt.retireVersion(t.Context(), d, *d.Retire); err != nil {
				t.Fatal(err)
			}
			d, err := rt.Deployments.Get(t.Context())
			if err != nil || d.Retire != nil || !upgradestate.Retired(d, "v1") || len(d.Kept) != 1 || len(d.Kept[0].Namespace.Kinds) != len(kinds) {
				t.Fatalf("stop %d: %+v, %v", stop, d, err)
			}
			for _, kind := range kinds {
				k, _ := ns.Kind(kind)
				if name, err := old.Locate(t.Context(), k.ID); err != nil || name != "dbc_retired.v1."+k.Physical {
					t.Errorf("stop %d: %s is at %q, %v", stop, kind, name, err)
				}
			}
			interrupt(faultstore.Locate, faultstore.Drop)
			if err := rt.dropKept(t.Context(), d, d.Kept[0].Namespace); err == nil || n <= stop {
				t.Errorf("stop %d: the drop did not fail", stop)
			}
			if err := rt.dropKept(t.Context(), d, d.Kept[0].Namespace); err != nil {
				t.Fatal(err)
			}
			if d, err = rt.Deployments.Get(t.Context()); err != nil || len(d.Kept) > 0 || !upgradestate.Retired(d, "v1") {
				t.Errorf("stop %d: %+v, %v", stop, d, err)
			}
			for _, k := range ns.Kinds {
				if _, err := old.Locate(t.Context(), k.ID); !errors.Is(err, record.ErrNotFound) {
					t.Errorf("stop %d: %s is not dropped: %v", stop, k.Kind, err)
				}
			}
		}
	}
}

// TestRescuedStays: a collection that a person has given another name, out of those that were
// set aside, is not dropped with them.
func TestRescuedStays(t *testing.T) {
	t.Parallel()
	rt, old, _, d := retiring(t, "2999-01-01T00:00:00Z")
	if err := rt.retireVersion(t.Context(), d, *d.Retire); err != nil {
		t.Fatal(err)
	}
	d, err := rt.Deployments.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ns := d.Kept[0].Namespace
	rescued, other := ns.Kinds[0], ns.Kinds[1]
	tok := record.Token{Kind: rescued.Kind, Name: upgradestate.RetiredName("v1", rescued), ID: rescued.ID}
	if err := old.Fence(t.Context(), record.Fence{Token: tok, Class: record.FenceUUID, To: "rescued"}); err != nil {
		t.Fatal(err)
	}
	// An answer that is lost is no reason to drop it.
	lost := true
	rt.Namespaces["v1"] = faultstore.Wrap(old, faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
		if op.Command == faultstore.Locate && lost {
			lost = false
			return faultstore.Down()
		}
		return faultstore.Fault{}
	}))
	if err := rt.dropKept(t.Context(), d, ns); err == nil {
		t.Error("it was not interrupted")
	}
	if err := rt.dropKept(t.Context(), d, ns); err != nil {
		t.Fatal(err)
	}
	if name, err := old.Locate(t.Context(), rescued.ID); err != nil || name != "rescued" {
		t.Errorf("it is at %q, %v", name, err)
	}
	if _, err := old.Locate(t.Context(), other.ID); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("the other one is not dropped: %v", err)
	}
}

// TestKeptUntil runs the leader's work by a clock that is stepped: nothing is dropped before
// its time, and all of it after.
func TestKeptUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, old, _, d := retiring(t, time.Now().Add(25*time.Hour).UTC().Format(time.RFC3339))
		failures := 0
		rt.Namespaces["v1"] = faultstore.Wrap(old, faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
			if op.Command == faultstore.Drop && failures < 2 {
				failures++
				return faultstore.Down()
			}
			return faultstore.Fault{}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- rt.Run(ctx) }()
		ns, _ := d.Namespace("v1")
		k := ns.Kinds[0]
		time.Sleep(24*time.Hour + 59*time.Minute)
		synctest.Wait()
		if name, err := old.Locate(ctx, k.ID); err != nil || name != "dbc_retired.v1."+k.Physical {
			t.Errorf("before its time it is at %q, %v", name, err)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if _, err := old.Locate(ctx, k.ID); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("after its time: %v", err)
		}
		if d, err := rt.Deployments.Get(ctx); err != nil || len(d.Kept) > 0 {
			t.Errorf("%+v, %v", d.Kept, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
