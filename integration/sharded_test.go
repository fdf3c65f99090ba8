package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Records of the sharded upgrade, by kind: of an application that writes them, and of ones
// that only have them.
const (
	hashedRecords    = 1_500
	rangedRecords    = 1_200
	unshardedRecords = 300
)

// TestShardedThereAndBack upgrades a service on a sharded cluster and takes it back, with
// real processes and under traffic, while chunks move from shard to shard. One source is
// sharded by the hash of _id, one by ranges, one not at all, and the managed kinds are not
// either; the target of the first is sharded beforehand, as the guide says. Nothing is
// lost, duplicated or resurrected, and the last changes of a switch are not waited for
// until an idle shard writes by itself. It runs by itself: the cluster alone is four
// servers, and with others at the same time it measures the machine.
func TestShardedThereAndBack(t *testing.T) { //nolint:paralleltest // see above
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	c := mongotest.Sharded(t)
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": c.URI(), "v2": c.URI()},
		kinds: `
- {from: packages, to: packages, lens: packages.yaml}
- {from: ranged, to: ranged, lens: packages.yaml}
- {from: unsharded, to: unsharded, lens: packages.yaml}
`,
		toSwitch: "{deadline: 30s, maxLag: 5s}",
	})
	v1, v2 := s.db["v1"].Name(), s.db["v2"].Name()
	c.ShardHashed(t, v1, packagesKind)
	c.ShardRanged(t, v1, "ranged", packageKey(rangedRecords/4), packageKey(rangedRecords/2), packageKey(rangedRecords*3/4))
	c.ShardHashed(t, v2, record.PhysicalName(packagesKind, 1))
	tr := newTraffic(ctx, s, hashedRecords)
	others := map[string]int{"ranged": rangedRecords, "unsharded": unshardedRecords}
	for kind, n := range others {
		docs := make([]any, n)
		for i := range docs {
			docs[i] = packageDoc("v1", packageKey(i), 0)
		}
		if _, err := s.db["v1"].Collection(kind).InsertMany(ctx, docs); err != nil {
			t.Fatal(err)
		}
	}
	stops := map[string]func() int{v1: c.KeepMoving(t, v1), v2: c.KeepMoving(t, v2)}

	first := s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	server := s.server("server", 0).ready(ctx)
	tr.start(ctx, server)
	tr.awaitWrites(ctx, "v1", 10)
	report, err := s.apis()[0].Plan(ctx, connect.NewRequest(&dbv1.PlanRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, check := range report.Msg.GetChecks() {
		if check.GetArea() == "sharding" {
			said[check.GetSubject()] = check.GetText()
		}
	}
	if !strings.Contains(said["ranged"], fmt.Sprintf("Shard it before the copy: sh.shardCollection(%q, {_id: 1})", v2+".ranged.n1")) ||
		!strings.Contains(said[packagesKind], `the target `+v2+`.packages.n1 by {_id: "hashed"}`) || said["unsharded"] != "" {
		t.Errorf("the plan says of sharding: %v", said)
	}
	for _, to := range []string{"v2", "v1"} {
		writes, packages := tr.processes.count(to), tr.packages.count(to)
		tr.keep(true) // through mongos there is no fence by views
		s.beginTo(ctx, to)
		d := s.await(ctx, "the flip to "+to, flipped(to))
		tr.await(ctx, to, writes+10, tr.processes)
		tr.await(ctx, to, packages+10, tr.packages)
		tr.keep(false)
		t.Logf("flip to %s: phases %v ms", to, d.LastSwitch.Millis)
		if drain := time.Duration(d.LastSwitch.Millis["drain"]) * time.Millisecond; drain > 5*time.Second {
			t.Errorf("the drain before the flip to %s took %v", to, drain)
		}
		s.awaitAll(ctx, to, others)
	}
	moved := 0
	for _, stop := range stops {
		moved += stop()
	}
	t.Logf("%d chunks moved", moved)
	if moved == 0 {
		t.Error("no chunk moved meanwhile")
	}
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr.settle(ctx, d)
	at, _ := first.addresses()
	s.completeThere(ctx, at, d, "v2")
}

// completeThere retires a version: its collections are set aside, sharded ones as well, and
// then dropped.
func (s *system) completeThere(ctx context.Context, at string, d upgradestate.Deployment, version string) {
	s.t.Helper()
	was, _ := d.Namespace(version)
	confirm, _ := api.Confirmation(d, version)
	for _, step := range []struct {
		keep string
		done func(d upgradestate.Deployment) bool
	}{
		{"1h", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, version) }},
		{"0s", func(d upgradestate.Deployment) bool { return len(d.Kept) == 0 }},
	} {
		r := execute(ctx, s.t, []string{"DBCONTROLLER_SERVER=" + at}, "complete", "--version", version, "--ignore-usage", "--keep-for", step.keep, "--confirm", confirm)
		if r.code != 0 {
			s.t.Fatalf("%+v", r)
		}
		d = s.await(ctx, "the end of "+version, step.done)
		if len(d.Kept) > 0 {
			s.checkSetAside(ctx, was, d)
		}
	}
	// The views that applications which were forgotten find are kept in a collection of the server's own.
	names, err := s.db[version].ListCollectionNames(ctx, bson.D{{Key: "type", Value: "collection"}, {Key: "name", Value: bson.D{{Key: "$ne", Value: "system.views"}}}})
	if err != nil || len(names) > 0 {
		s.t.Errorf("%s still has %v, %v", version, names, err)
	}
}

// TestShardedCollectionMadeAnew moves and reshards collections in every way that makes them
// anew under their names: in sync, between two runs of controllers, during the copy, held at ready (in
// make soak), during a switch, and after it. An application's is followed. Of a managed kind everyone who knows the old one
// is refused, and the controller accepts the new one, because the changes show that only the cluster made
// it. Clients and the server go on. Only in the end, while no controller runs, does somebody run
// 'recover'. A switch during which a collection moved is given up. Nothing is lost.
func TestShardedCollectionMadeAnew(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	c := mongotest.Sharded(t)
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": c.URI(), "v2": c.URI()}, copy: "{auto: true, workers: 2}", toSwitch: "{deadline: 5m, maxLag: 5s}",
	})
	v1 := s.db["v1"].Name()
	tr := newTraffic(ctx, s, 200)
	tr.processes.excused, tr.packages.excused = true, true // the database refuses them, until the new ones are known
	controller := s.stepping("controller").ready(ctx)
	tr.start(ctx, s.server("server", 0).ready(ctx))
	latest := func() upgradestate.Deployment {
		t.Helper()
		d, err := s.record.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	managed := func() string {
		ns, _ := latest().Namespace("v1")
		return ns.Kinds[slices.IndexFunc(ns.Kinds, func(k upgradestate.Kind) bool { return !k.Fixed })].Physical
	}
	c.ShardRanged(t, v1, packagesKind)
	// accepted waits until a controller has accepted the collection of a managed kind that an act made
	// anew, and clients write again.
	accepted := func(act string, do func()) {
		t.Helper()
		before := latest()
		do()
		since := time.Now()
		d := s.await(ctx, "what "+act+" made to be accepted", func(d upgradestate.Deployment) bool { return d.Epoch > before.Epoch })
		version := before.CurrentVersion
		tr.await(ctx, version, tr.processes.count(version)+3, tr.processes)
		tr.await(ctx, version, tr.packages.count(version)+3, tr.packages)
		t.Logf("%s: clients write again after %v", act, time.Since(since))
		if d.Upgrade != nil || d.CurrentVersion != version || !slices.ContainsFunc(d.History, func(e upgradestate.Entry) bool { return e.What == "adopt" && e.To == version }) {
			t.Errorf("after %s: at %s, upgrade %+v, history %+v", act, d.CurrentVersion, d.Upgrade, d.History)
		}
		s.awaitSync(ctx)
	}
	// givenUp checks that the latest upgrade ended for a collection that was made anew.
	givenUp := func(act string) {
		t.Helper()
		said := ""
		for _, e := range latest().History {
			if e.What == "upgrade" {
				said = e.Detail + e.Outcome
			}
		}
		if !strings.Contains(said, "was recreated, as movePrimary and reshardCollection do: begin the upgrade again") {
			t.Errorf("the upgrade ended for %s as %q", act, said)
		}
	}
	s.awaitSync(ctx)
	accepted("movePrimary", func() { c.MovePrimary(t, v1) })
	accepted("reshardCollection between two runs", func() {
		c.ShardRanged(t, v1, managed())
		s.kill(controller)
		c.Reshard(t, v1, managed(), bson.D{{Key: "_id", Value: "hashed"}})
		controller = s.stepping("second").ready(ctx)
	})
	follows := func(version, act string, do func()) {
		t.Helper()
		replacements := func(d upgradestate.Deployment) uint64 {
			ns, _ := d.Namespace(version)
			k, _ := ns.Kind(packagesKind)
			return k.Replaced
		}
		before, err := s.record.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		do()
		d := s.await(ctx, act+" to be followed", func(d upgradestate.Deployment) bool { return replacements(d) > replacements(before) })
		told := slices.ContainsFunc(d.History, func(e upgradestate.Entry) bool { return e.What == "replace" && e.To == version })
		if d.Epoch != before.Epoch || !told {
			t.Errorf("after %s: epoch %d, history %+v", act, d.Epoch, d.History)
		}
	}
	synced := func(version, act string) {
		t.Helper()
		since := time.Now()
		s.awaitSync(ctx)
		tr.await(ctx, version, tr.packages.count(version)+3, tr.packages)
		t.Logf("%s: all is compared anew after %v", act, time.Since(since))
	}
	s.awaitSync(ctx)
	s.pauses(ctx, true) // so that the second one comes during the copy after the first
	follows("v1", "reshardCollection", func() { c.Reshard(t, v1, packagesKind, bson.D{{Key: "_id", Value: "hashed"}}) })
	s.awaitShown(ctx, func(shown *dbv1.Replaced) bool {
		return shown.GetReportingShards() == ring && shown.GetCopied() < shown.GetTotal()
	})
	follows("v1", "unshardCollection", func() { c.Unshard(t, v1, packagesKind) })
	s.pauses(ctx, false)
	synced("v1", "reshardCollection and unshardCollection")
	if r := s.recover(ctx, "--confirm", s.name); r.code == 0 || !strings.Contains(r.stderr, "there is nothing to recover") {
		t.Errorf("nothing is to be recovered: exit %d: %s", r.code, r.stderr)
	}

	act, makeAnew := "unshardCollection", func() { c.Unshard(t, v1, managed()) }
	if soaks() {
		s.beginHolding(ctx, "v2")
		s.await(ctx, "readiness", func(d upgradestate.Deployment) bool { return d.Upgrade != nil && len(d.Upgrade.ReadyShards) == ring })
		accepted(act+" at ready", makeAnew)
		givenUp(act + " at ready")
		act, makeAnew = "moveCollection", func() { c.MoveCollection(t, v1, managed()) }
	}

	tr.keep(true) // through mongos there is no fence by views
	s.beginTo(ctx, "v2")
	toDrain := func() {
		for controller.awaitReached(ctx) != string(upgradestate.StepDrain) {
			controller.order(orderStep)
		}
	}
	toDrain()
	c.MoveCollection(t, v1, packagesKind)
	controller.order(orderStep)
	d := s.await(ctx, "the attempt to be given up", func(d upgradestate.Deployment) bool { return d.Upgrade == nil || d.Upgrade.Failures > 0 })
	if d.Upgrade == nil || !strings.Contains(d.Upgrade.LastFailure, "replaced during the switch") {
		t.Errorf("the attempt did not end for moveCollection: %+v", d.Upgrade)
	}
	toDrain()
	accepted(act+" in the switch", func() {
		makeAnew()
		controller.order(orderRun)
	})
	givenUp(act + " in the switch")
	s.beginTo(ctx, "v2")
	s.await(ctx, "the flip", flipped("v2"))
	tr.awaitWrites(ctx, "v2", 10)

	s.awaitSync(ctx)
	follows("v2", "moveCollection after the switch", func() { c.MoveCollection(t, s.db["v2"].Name(), packagesKind) })
	synced("v2", "moveCollection after the switch")

	// That of the version which was left takes its fence along. Once it is taken for the one before,
	// a rollback gives back what the fence had replaced.
	s.kill(controller)
	c.MoveBack(t, v1, packagesKind)
	if r := s.recover(ctx, "--confirm", s.recover(ctx).confirmation(t)); r.code != 0 || !strings.Contains(r.stderr, "is adopted, which is right after movePrimary") {
		t.Fatalf("recover after moveCollection of v1: exit %d: %s", r.code, r.stderr)
	}
	s.controller("third", breakPoint{}).ready(ctx)
	s.beginTo(ctx, "v1") // nothing follows before it: after recover all is copied anew
	d = s.await(ctx, "the rollback", flipped("v1"))
	tr.awaitWrites(ctx, "v1", 10)
	tr.settle(ctx, d)
}

// awaitAll waits until a version has all records of the kinds, as it should have them.
func (s *system) awaitAll(ctx context.Context, version string, kinds map[string]int) {
	s.t.Helper()
	for kind, n := range kinds {
		eventually(ctx, s.t, fmt.Sprintf("all %s in %s", kind, version), func() error {
			cursor, err := s.db[version].Collection(kind).Find(ctx, bson.D{})
			if err != nil {
				return err
			}
			var docs []bson.D
			if err := cursor.All(ctx, &docs); err != nil {
				return err
			}
			seen := map[string]bool{}
			for _, doc := range docs {
				key, _ := doc[0].Value.(string)
				if has, want := fmt.Sprint(doc), fmt.Sprint(packageDoc(version, key, 0)); !sameFields(doc, packageDoc(version, key, 0)) {
					return fmt.Errorf("%s holds %s, want %s", key, has, want)
				}
				seen[key] = true
			}
			if len(seen) != n || len(docs) != n {
				return fmt.Errorf("%d records with %d keys, want %d", len(docs), len(seen), n)
			}
			return nil
		})
	}
}

// sameFields compares documents without regard to the order of their fields.
func sameFields(a, b bson.D) bool {
	fields := map[string]string{}
	for _, e := range a {
		fields[e.Key] = fmt.Sprint(e.Value)
	}
	for _, e := range b {
		if fields[e.Key] != fmt.Sprint(e.Value) {
			return false
		}
	}
	return len(a) == len(b)
}
