package collections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/upgradestate"
)

// shapeWorld is an application's collection in v1, and what v2 makes of it.
type shapeWorld struct {
	t     *testing.T
	keep  *Maintainer
	store *deployment.Store
	db    map[string]*memstore.Store
	at    map[string]Database // what the Maintainer finds, by version
	dir   transform.Direction
	coord *memcoord.Store
}

const (
	shapeKind = "sessions"
	shapeRing = 4
)

func newShapeWorld(t *testing.T, indexes ...bson.D) *shapeWorld {
	t.Helper()
	return newShapeWorldOf(t, func(*transform.Spec) {}, indexes...)
}

// newShapeWorldOf is newShapeWorld with another declaration of the kinds.
func newShapeWorldOf(t *testing.T, declare func(*transform.Spec), indexes ...bson.D) *shapeWorld {
	t.Helper()
	w := &shapeWorld{t: t, db: map[string]*memstore.Store{}, at: map[string]Database{}, coord: memcoord.New()}
	cluster := memstore.NewCluster(memstore.Options{})
	l, err := lens.Parse("sessions.yaml", []byte("lens: 1\noperations:\n  - rename: {from: mail, to: address}\n"))
	w.check(err)
	registry := transform.NewRegistry("shop")
	spec := l.Spec(shapeKind, shapeKind)
	declare(&spec)
	w.check(registry.Add("v1", "v2", spec))
	w.dir, err = registry.Direction("v1", "v2")
	w.check(err)
	w.store = deployment.New(w.coord, "services/shop/deployments/d", deployment.Config{})
	carry := Carries{{"v1", "v2"}: {shapeKind: {From: shapeKind, Shape: func(s record.Shape) (record.Shape, error) {
		for i, spec := range s.Indexes {
			mapped, err := l.MapIndex(spec)
			if err != nil {
				return s, err
			}
			s.Indexes[i] = mapped
		}
		return s, nil
	}, Back: func(s record.Shape) (record.Shape, error) {
		if v, ok := s.Options.Lookup("validator").DocumentOK(); ok {
			if field, touched := l.TouchesValidator(v); touched {
				return record.Shape{}, fmt.Errorf("the validator uses %s", field)
			}
		}
		for i, spec := range s.Indexes {
			old, err := l.UnmapIndex(spec)
			if err != nil {
				return s, err
			}
			s.Indexes[i] = old
		}
		return s, nil
	}}}}
	w.keep = New(Parts{
		Deployments: w.store, Registry: registry, Carry: carry, Log: zaptest.NewLogger(t),
		Database: func(version string) Database { return w.at[version] },
		Idle:     func(upgradestate.Deployment, string) bool { return false },
		Target: func(d upgradestate.Deployment) (string, bool) {
			to, ok := upgradestate.Followed(d)
			return to.TargetVersion, ok
		},
	})
	for _, v := range []string{"v1", "v2"} {
		w.db[v] = cluster.Open(v)
		w.at[v] = w.db[v]
	}
	if spec.Old.Kinds[0].Fixed {
		_, err = w.db["v1"].Provision(t.Context(), record.KindSpec{Name: shapeKind, Fixed: true}, shapeKind)
		w.check(err)
		w.index(indexes...)
	} else {
		clear(carry)
	}
	_, err = w.store.Create(t.Context(), "v1", shapeRing)
	w.check(err)
	d := w.record()
	for _, v := range []string{"v1", "v2"} {
		kinds := w.dir.SourceKinds()
		if v == "v2" {
			kinds, err = w.keep.Carried(t.Context(), d, w.dir)
			w.check(err)
		}
		ns, err := syncer.Provision(t.Context(), w.db[v], d, v, "mem:"+v, kinds, func(string) record.FenceClass { return "" })
		w.check(err)
		d, err = w.store.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns})
		w.check(err)
	}
	_, err = w.store.Apply(t.Context(), upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: w.dir.Hash()}})
	w.check(err)
	return w
}

func (w *shapeWorld) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *shapeWorld) record() upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	return d
}

// index has the application make indexes on its collection.
func (w *shapeWorld) index(specs ...bson.D) {
	w.t.Helper()
	spec := record.KindSpec{Name: shapeKind, Fixed: true}
	for _, s := range specs {
		raw, err := bson.Marshal(s)
		w.check(err)
		spec.Shape.Indexes = append(spec.Shape.Indexes, raw)
	}
	w.check(w.db["v1"].BuildIndexes(w.t.Context(), record.Token{Kind: shapeKind, Name: shapeKind}, spec))
}

func (w *shapeWorld) kind(version string) upgradestate.Kind {
	ns, _ := w.record().Namespace(version)
	k, _ := ns.Kind(shapeKind)
	return k
}

func (w *shapeWorld) shape(version string) record.Shape {
	w.t.Helper()
	info, err := w.db[version].Describe(w.t.Context(), record.KindSpec{Name: shapeKind, Fixed: true}, w.kind(version).Physical)
	w.check(err)
	return info.Shape
}

// want compares what a version's TTL indexes do now, and what is noted that they must do.
func (w *shapeWorld) want(when, version string, now, noted map[string]int64) {
	w.t.Helper()
	if have := record.ExpiryOf(w.shape(version)); !maps.Equal(have, now) {
		w.t.Errorf("%s: %s deletes after %v, want %v", when, version, have, now)
	}
	if have := w.kind(version).Expiry; !maps.Equal(have, noted) {
		w.t.Errorf("%s: of %s is noted %v, want %v", when, version, have, noted)
	}
}

func (w *shapeWorld) begin(id string) upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Apply(w.t.Context(), upgradestate.Begin{ID: id, TargetVersion: "v2"})
	w.check(err)
	return d
}

func (w *shapeWorld) abort(id string) {
	w.t.Helper()
	_, err := w.store.Apply(w.t.Context(), upgradestate.Abort{ID: id, Reason: "test"})
	w.check(err)
}

// ready reports all shards.
func (w *shapeWorld) ready(d upgradestate.Deployment) upgradestate.Deployment {
	w.t.Helper()
	report := upgradestate.Report{ID: d.Upgrade.ID, State: d.Upgrade.State, Attempt: d.Upgrade.Attempt}
	for n := range shapeRing {
		report.Shards = append(report.Shards, n)
	}
	d, err := w.store.Apply(w.t.Context(), report)
	w.check(err)
	return d
}

func ttlIndex(field string, seconds int64) bson.D {
	return bson.D{
		{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: field, Value: int32(1)}}},
		{Key: "name", Value: field + "_1"}, {Key: "expireAfterSeconds", Value: seconds},
	}
}

type seconds = map[string]int64

// expire has somebody else change TTL indexes of a version.
func (w *shapeWorld) expire(version string, to seconds) {
	w.t.Helper()
	_, err := w.db[version].Expire(w.t.Context(), w.token(version), to)
	w.check(err)
}

// hastyApplication is a database whose application changes TTL indexes right before the controller
// does, once. The controller's change then reports an error, if there is one.
type hastyApplication struct {
	Database
	to  seconds
	err error
}

func (h *hastyApplication) Expire(ctx context.Context, tok record.Token, to map[string]int64) (map[string]int64, error) {
	if h.to == nil {
		return h.Database.Expire(ctx, tok, to)
	}
	if _, err := h.Database.Expire(ctx, tok, h.to); err != nil {
		return nil, err
	}
	h.to = nil
	had, err := h.Database.Expire(ctx, tok, to)
	return had, errors.Join(err, h.err)
}

// TestExpiryChangedMeanwhile: what an application makes of a TTL index between a controller's look and
// its change is not lost: neither when the controller stops the index before a switch nor when it
// starts it again.
func TestExpiryChangedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60), ttlIndex("seen", 5))
	ctx := t.Context()
	between := func(to seconds, err error) { w.at["v1"] = &hastyApplication{w.db["v1"], to, err} }
	d := w.ready(w.begin("u1"))
	between(seconds{"at_1": 70}, nil)
	w.check(w.keep.StopExpiry(ctx, d))
	w.want("stopped", "v1", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, seconds{"at_1": 70, "seen_1": 5})
	w.abort("u1")
	between(seconds{"at_1": 80}, nil)
	w.check(w.keep.recheckExpiry(ctx))
	w.want("started", "v1", seconds{"at_1": 80, "seen_1": 5}, nil)

	// A change that fails may have been made all the same.
	lost := errors.New("the primary has stepped down")
	d = w.ready(w.begin("u2"))
	between(seconds{"at_1": 90}, lost)
	if err := w.keep.StopExpiry(ctx, d); !errors.Is(err, lost) {
		t.Errorf("stopped in a failover: %v", err)
	}
	w.want("stopped in a failover", "v1", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, seconds{"at_1": 90, "seen_1": 5})
	w.abort("u2")
	between(seconds{"at_1": 100}, lost)
	if err := w.keep.recheckExpiry(ctx); !errors.Is(err, lost) {
		t.Errorf("started in a failover: %v", err)
	}
	if have := record.ExpiryOf(w.shape("v1")); !maps.Equal(have, seconds{"at_1": 100, "seen_1": 5}) {
		t.Errorf("after a failover v1 deletes after %v", have)
	}
	w.check(w.keep.recheckExpiry(ctx))
	w.want("started again", "v1", seconds{"at_1": 100, "seen_1": 5}, nil)
}

// TestExpiryBesideTheSwitch: TTL indexes delete in the version that is served, with the
// seconds that they have there, and nowhere while a switch may begin.
func TestExpiryBesideTheSwitch(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60))
	ctx := t.Context()
	never := seconds{"at_1": record.NeverExpires}
	w.check(w.keep.recheckExpiry(ctx))
	w.want("while it is synced", "v1", seconds{"at_1": 60}, nil)

	d := w.begin("u1")
	if _, err := w.keep.completeIndexes(ctx, d, "v2"); err != nil {
		t.Fatal(err)
	}
	w.want("not copied", "v2", nil, seconds{"at_1": 60})
	w.check(w.keep.recheckExpiry(ctx))
	w.want("not ready", "v1", seconds{"at_1": 60}, nil)
	d = w.ready(d)
	for range 2 {
		w.check(w.keep.StopExpiry(ctx, d))
		w.want("right before the switch", "v1", never, seconds{"at_1": 60})
		d = w.record()
	}
	w.check(w.keep.recheckExpiry(ctx))
	w.want("a switch may begin", "v1", never, seconds{"at_1": 60})
	if err := w.keep.CheckSealed(ctx, d); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "index at_1 is missing") {
		t.Errorf("the target is not complete: %v", err)
	}

	// What the target gets meanwhile is what the source must do, not what it does now.
	shape, err := w.keep.carriedShape(ctx, d, w.keep.Carry.along(w.dir)[shapeKind])
	w.check(err)
	if have := record.ExpiryOf(shape); !maps.Equal(have, seconds{"at_1": 60}) {
		t.Errorf("carried over: %v", have)
	}

	w.abort("u1")
	w.check(w.keep.recheckExpiry(ctx))
	w.want("aborted", "v1", seconds{"at_1": 60}, nil)

	// The application changes one index and makes another.
	w.expire("v1", seconds{"at_1": 90})
	w.index(ttlIndex("seen", 5))
	w.check(w.keep.recheckExpiry(ctx))
	w.want("changed by the application", "v1", seconds{"at_1": 90, "seen_1": 5}, nil)
	d = w.ready(w.begin("u2"))
	w.check(w.keep.StopExpiry(ctx, d))
	both := seconds{"at_1": 90, "seen_1": 5}
	w.want("before the second switch", "v1", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, both)

	// Somebody lets one go on behind our back.
	w.expire("v1", seconds{"seen_1": 5})
	if err := w.keep.CheckSealed(ctx, w.record()); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "TTL index seen_1 of v1/sessions deletes after 5 s") {
		t.Errorf("an index that deletes again: %v", err)
	}
	w.abort("u2")
	w.check(w.keep.recheckExpiry(ctx))
	w.want("aborted again", "v1", both, nil)
}

// TestExpiryOfATargetThatRuns: an index that deletes in a version that is not served is
// stopped, and what was declared stays noted.
func TestExpiryOfATargetThatRuns(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60))
	ctx := t.Context()
	k := w.kind("v2")
	spec := record.KindSpec{Name: shapeKind, Fixed: true}
	for _, ix := range []bson.D{ttlIndex("at", 1), ttlIndex("other", 7)} {
		raw, err := bson.Marshal(ix)
		w.check(err)
		spec.Shape.Indexes = append(spec.Shape.Indexes, raw)
	}
	w.check(w.db["v2"].BuildIndexes(ctx, record.Token{Kind: shapeKind, Name: k.Physical, ID: k.ID}, spec))
	w.check(w.keep.recheckExpiry(ctx))
	w.want("stopped", "v2", seconds{"at_1": record.NeverExpires, "other_1": record.NeverExpires}, seconds{"at_1": 60, "other_1": 7})
}

// TestExpirySurvivesFailures stops and starts TTL indexes with each command failing in
// turn, before or after it was done, and the process that goes on knowing nothing: no
// index is ever stopped without a note of what it did.
func TestExpirySurvivesFailures(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		for at := 1; ; at++ {
			w := newShapeWorld(t, ttlIndex("at", 60), ttlIndex("seen", 5))
			failing := &nth{left: at, lost: lost}
			for v, ns := range w.db {
				w.at[v] = faultstore.Wrap(ns, failing)
			}
			both := seconds{"at_1": 60, "seen_1": 5}
			failed := w.keep.StopExpiry(t.Context(), w.ready(w.begin("u1")))
			failing.left = 0
			for name, s := range record.ExpiryOf(w.shape("v1")) {
				if noted, ok := w.kind("v1").Expiry[name]; s == record.NeverExpires && (!ok || noted != both[name]) {
					t.Errorf("command %d, lost %t: %s is stopped, and noted is %d (%t)", at, lost, name, noted, ok)
				}
			}
			w.check(w.keep.StopExpiry(t.Context(), w.record()))
			w.want("stopped", "v1", seconds{"at_1": record.NeverExpires, "seen_1": record.NeverExpires}, both)
			w.abort("u1")
			failing.left = at
			_ = w.keep.recheckExpiry(t.Context())
			failing.left = 0
			w.check(w.keep.recheckExpiry(t.Context()))
			w.want("started", "v1", both, nil)
			if failed == nil {
				break // there is no such command
			}
		}
	}
}

// TestExpiryBesideOneThatIsGone: a version whose collections nobody finds any longer does not
// keep the one that is served from deleting again.
func TestExpiryBesideOneThatIsGone(t *testing.T) {
	t.Parallel()
	w := newShapeWorld(t, ttlIndex("at", 60))
	ctx := t.Context()
	w.check(w.keep.StopExpiry(ctx, w.ready(w.begin("u1"))))
	w.abort("u1")
	k := w.kind("v2")
	w.check(w.db["v2"].Drop(ctx, record.Token{Kind: shapeKind, Name: k.Physical, ID: k.ID, Fixed: true}))
	// It is looked at first, as an old version is.
	w.keep.Deployments = reversed(t, w.record())
	if err := w.keep.recheckExpiry(ctx); err == nil {
		t.Error("nobody says that v2 is gone")
	}
	w.want("v2 is gone", "v1", seconds{"at_1": 60}, seconds{"at_1": 60})
}

// reversed is a deployment with the versions of another in the opposite order.
func reversed(t *testing.T, d upgradestate.Deployment) *deployment.Store {
	t.Helper()
	s := deployment.New(memcoord.New(), "services/shop/deployments/d", deployment.Config{})
	if _, err := s.Create(t.Context(), d.CurrentVersion, shapeRing); err != nil {
		t.Fatal(err)
	}
	for _, ns := range slices.Backward(d.Namespaces) {
		if _, err := s.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// nth fails the command after so many; 0 is none.
type nth struct {
	left int
	lost bool
}

func (n *nth) Inject(faultstore.Op) faultstore.Fault {
	n.left--
	switch {
	case n.left != 0:
		return faultstore.Fault{}
	case n.lost:
		return faultstore.Fault{After: faultstore.ErrInjected}
	default:
		return faultstore.Fault{Before: faultstore.ErrInjected}
	}
}
