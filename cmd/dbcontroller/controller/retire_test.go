package controller

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"

	"dbcontroller/coord/memcoord"
	"dbcontroller/deployment"
	"dbcontroller/record"
	"dbcontroller/record/faultstore"
	"dbcontroller/record/memstore"
	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
)

// retiring is a deployment that has left v1, which is being retired.
func retiring(t *testing.T) (*App, *memstore.Store, *memcoord.Store, upgradestate.Deployment) {
	t.Helper()
	const name = "services/a/deployments/b"
	c := memcoord.New()
	a := &App{
		deployment: deployment.New(c, name, deployment.Config{}),
		namespaces: map[string]record.Namespace{}, log: zap.NewNop(),
	}
	if _, err := a.deployment.Create(t.Context(), "v2", 4); err != nil {
		t.Fatal(err)
	}
	old := memstore.New()
	for version, db := range map[string]*memstore.Store{"v1": old, "v2": memstore.New()} {
		a.namespaces[version] = db
		ns := upgradestate.Namespace{Version: version, Location: "mem:" + version}
		for _, kind := range []string{"things", "dbc_lineage.x"} {
			tok, err := db.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
			if err != nil {
				t.Fatal(err)
			}
			ns.Kinds = append(ns.Kinds, upgradestate.Kind{Kind: kind, Physical: tok.Name, ID: tok.ID})
		}
		if _, err := a.deployment.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []syncer.DirectionKey{"1-v1-v2-h1", "2-v2-v1-h2", "2-v2-v3-h3"} {
		if _, err := a.deployment.CreatePlan(t.Context(), dir, syncer.Plan{}); err != nil {
			t.Fatal(err)
		}
		if err := a.deployment.Park(t.Context(), syncer.Parked{Direction: dir, Kind: "things", Key: "x", Group: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := a.deployment.Apply(t.Context(), upgradestate.Complete{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	return a, old, c, d
}

// TestRetire fails at every act on the database in turn, as if the process had died there,
// and goes on. Nothing but what the record names is dropped.
func TestRetire(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for stop := range 4 {
			a, old, c, d := retiring(t)
			strange, err := old.Provision(t.Context(), record.KindSpec{Name: "strange"}, "strange.n1")
			if err != nil {
				t.Fatal(err)
			}
			n, met := 0, false
			a.namespaces["v1"] = faultstore.Wrap(old, faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
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
			if err := a.dropVersion(t.Context(), d); err == nil {
				t.Errorf("stop %d: it did not fail", stop)
			}
			if d, err = a.deployment.Get(t.Context()); err != nil || d.Retire == nil || !met {
				t.Errorf("stop %d: the record has forgotten it: %+v, %v", stop, d, err)
			}
			if err := a.dropVersion(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if d, err = a.deployment.Get(t.Context()); err != nil || d.Retire != nil || !upgradestate.Retired(d, "v1") {
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
			kvs, _, err := c.List(t.Context(), a.deployment.Root())
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
	a, old, _, d := retiring(t)
	ns, _ := d.Namespace("v1")
	k, _ := ns.Kind("things")
	if err := old.Drop(t.Context(), record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID}); err != nil {
		t.Fatal(err)
	}
	other, err := old.Provision(t.Context(), record.KindSpec{Name: "things"}, k.Physical)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.dropVersion(t.Context(), d); err != nil {
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
	if err := dropKind(t.Context(), db, k); err == nil || !strings.Contains(err.Error(), "things.n1 by hand") {
		t.Errorf("while it is there: %v", err)
	}
	if name, err := db.Locate(t.Context(), tok.ID); err != nil || name != "things.n1" {
		t.Errorf("it was dropped: %q, %v", name, err)
	}
	if err := db.Drop(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if err := dropKind(t.Context(), db, k); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}
