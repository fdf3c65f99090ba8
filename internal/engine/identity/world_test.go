package identity_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

const deploymentName = "services/a/deployments/x"

var errNone = errors.New("no such deployment")

// world is a deployment whose record is a variable, over two databases in memory.
type world struct {
	t    *testing.T
	d    upgradestate.Deployment
	none bool // the record is lost
	db   map[string]*memstore.Store
	// clusters are those of db.
	clusters map[string]*memstore.Cluster
	classes  map[string]record.FenceClass // of packages by version; empty: the class of db
}

// Get implements identity.Deployments.
func (w *world) Get(context.Context) (upgradestate.Deployment, error) {
	if w.none {
		return upgradestate.Deployment{}, errNone
	}
	return w.d, nil
}

var kinds = []record.KindSpec{{Name: "accounts"}, {Name: "packages", Fixed: true}}

// newWorld has a managed kind and one of an application in both versions, at rest in v1.
func newWorld(t *testing.T, class record.FenceClass) *world {
	t.Helper()
	return newWorldOf(t, memstore.Options{FixedFence: class})
}

func newWorldOf(t *testing.T, opts memstore.Options) *world {
	t.Helper()
	return newWorldWith(t, opts, nil)
}

func newWorldWith(t *testing.T, opts memstore.Options, classes map[string]record.FenceClass) *world {
	t.Helper()
	w := &world{t: t, classes: classes, d: upgradestate.New(deploymentName, "v1", 2), db: map[string]*memstore.Store{}, clusters: map[string]*memstore.Cluster{}}
	for _, v := range []string{"v1", "v2"} {
		w.clusters[v] = memstore.NewCluster(opts)
		w.db[v] = w.clusters[v].Open(v)
	}
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "theirs"}})
	w.ok(err)
	w.ok(w.db["v1"].Foreign().Insert(t.Context(), "packages", doc))
	for _, v := range []string{"v1", "v2"} {
		w.enter(v)
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h"}})
	w.ok(w.keeper().Keep(t.Context(), w.d))
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// enter provisions a version as a controller does.
func (w *world) enter(version string) {
	w.t.Helper()
	ctx := w.t.Context()
	id, err := identity.Enter(ctx, w.d, version, w.db[version], []string{"accounts", "packages"})
	w.ok(err)
	ns, err := syncer.Provision(ctx, w.db[version], w.d, version, "mem:"+version, kinds, func(kind string) record.FenceClass {
		if kind == "packages" {
			return w.classes[version]
		}
		return ""
	})
	w.ok(err)
	w.ok(identity.Take(ctx, w.d, version, w.db[version], ns.Kinds, nil))
	ns.Identity = id
	w.apply(upgradestate.AnnounceNamespace{Namespace: ns})
}

func (w *world) apply(e upgradestate.Event) {
	w.t.Helper()
	next, err := upgradestate.Apply(w.d, e)
	if err != nil {
		w.t.Fatalf("%#v: %v", e, err)
	}
	next.Revision = w.d.Revision + 1
	w.d = next
}

func (w *world) markers() map[string]record.Marker {
	return map[string]record.Marker{"v1": w.db["v1"], "v2": w.db["v2"]}
}

func (w *world) keeper() identity.Keeper {
	return identity.Keeper{Deployments: w, Databases: w.markers()}
}

func (w *world) check() error { return identity.Check(w.t.Context(), w, w.markers()) }

// step does one thing that a driver does, and returns which; "" is nothing. Between any two
// of them the process may die, and etcd may be lost.
func (w *world) step(noted map[string]bool) string {
	w.t.Helper()
	ctx := w.t.Context()
	note := func(what string, do func(context.Context, upgradestate.Deployment) error) bool {
		key := what + fmt.Sprint(w.d.Upgrade.ID, w.d.Upgrade.Attempt)
		if noted[key] {
			return false
		}
		noted[key] = true
		w.ok(do(ctx, w.d))
		return true
	}
	if u := w.d.Upgrade; u != nil && u.Step == upgradestate.StepAbort && note("before abort", w.keeper().BeforeAbort) {
		return "note the abort"
	}
	for _, a := range upgradestate.Actions(w.d) {
		switch a := a.(type) {
		case upgradestate.Hold:
			w.apply(upgradestate.Held{ID: a.ID})
		case upgradestate.Execute:
			tok := record.Token{Kind: a.Place.Kind, Name: a.Place.Name, ID: a.Place.ID, Fixed: a.Place.Fixed}
			key := fmt.Sprint("act", a.Version, a.Pending)
			if !noted[key] { // executed and not confirmed is a place to stop at, too
				noted[key] = true
				w.ok(w.db[a.Version].Fence(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.Pending.To, Restore: a.Restore, Ends: a.Ends}))
				return "execute " + a.Pending.To
			}
			w.apply(upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
		case upgradestate.Prevent:
			tok := record.Token{Kind: a.Place.Kind, Name: a.Place.Name, ID: a.Place.ID, Fixed: a.Place.Fixed}
			moved, err := w.db[a.Version].Prevent(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.Pending.To})
			w.ok(err)
			if moved {
				w.apply(upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
			} else {
				w.apply(upgradestate.Prevented{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To})
			}
		case upgradestate.Unfence:
			tok := record.Token{Kind: a.Place.Kind, Name: a.To, ID: a.Place.ID, Fixed: true}
			w.ok(w.db[a.Version].Unfence(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.From, Restore: a.Restore, Ends: a.Ends}))
			w.apply(upgradestate.Unfenced{Version: a.Version, Kind: a.Place.Kind, From: a.From})
		case upgradestate.AwaitReports:
			w.apply(upgradestate.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards})
		case upgradestate.StartSwitch:
			w.apply(a)
		case upgradestate.Drained:
			w.apply(a)
		case upgradestate.Flip:
			if note("before flip", w.keeper().BeforeFlip) {
				return "note the flip"
			}
			w.apply(a)
		case upgradestate.FinishAbort:
			w.apply(upgradestate.Aborted{ID: a.ID})
		default:
			w.t.Fatalf("unknown action %T", a)
		}
		return fmt.Sprintf("%T", a)
	}
	if key := fmt.Sprint("kept", w.d.Revision); !noted[key] {
		noted[key] = true
		w.ok(w.keeper().Keep(ctx, w.d))
		return "keep"
	}
	return ""
}

// writable is the version whose collections clients can write by the record, with tokens
// that the database takes.
func (w *world) writable() string {
	w.t.Helper()
	version, places := upgradestate.WritePlaces(w.d)
	if len(places) == 0 {
		return ""
	}
	for _, p := range places {
		tok := record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
		m := record.Mutation{Kind: p.Kind, Key: record.StringKey("written"), Doc: must(bson.Marshal(bson.D{{Key: "_id", Value: "written"}}))}
		if p.Fixed {
			if p.Name != p.Kind {
				w.t.Fatalf("an application would have to write %s as %s", p.Kind, p.Name)
			}
			w.ok(w.db[version].Foreign().Put(w.t.Context(), p.Name, m.Doc))
			continue
		}
		if err := w.db[version].Write(w.t.Context(), record.Tokens{p.Kind: tok}, []record.Mutation{m}); err != nil {
			w.t.Fatalf("write %s of %s: %v", p.Kind, version, err)
		}
	}
	return version
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
