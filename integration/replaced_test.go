package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// pauses pauses bulk work, or lets it go on.
func (s *system) pauses(ctx context.Context, paused bool) {
	s.t.Helper()
	if _, err := s.apis()[0].SetPace(ctx, connect.NewRequest(&dbv1.SetPaceRequest{Paused: &paused})); err != nil {
		s.t.Fatal(err)
	}
}

// awaitShown waits until what is shown of replaced collections is as wanted; nil is nothing.
func (s *system) awaitShown(ctx context.Context, ok func(shown *dbv1.Replaced) bool) {
	s.t.Helper()
	eventually(ctx, s.t, "replaced collections are shown as they are", func() error {
		d, err := s.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err == nil && !ok(d.Msg.GetReplaced()) {
			err = fmt.Errorf("shown is %v", d.Msg.GetReplaced())
		}
		return err
	})
}

// noted reports whether the record has so many replacements of each kind of a version. One that
// has its identity again needs no note of its own where everything is copied anew anyway.
func noted(version string, least uint64) func(d upgradestate.Deployment) bool {
	return func(d upgradestate.Deployment) bool {
		ns, _ := d.Namespace(version)
		for _, k := range ns.Kinds {
			if k.Fixed && k.Replaced < least && k.Kind != "away" && k.Kind != "preserved" {
				return false
			}
		}
		return true
	}
}

// TestReplacedCollections: an application replaces its collections in six ways, in each phase of
// an upgrade and while no controller runs, under its own writes. Each is followed without anybody's
// help; a switch that runs is given up and tried again; nothing is lost, wrong, or back.
func TestReplacedCollections(t *testing.T) {
	t.Parallel()
	for class, step := range map[record.FenceClass]upgradestate.Step{
		record.FenceView:      upgradestate.StepFence,
		record.FenceValidator: upgradestate.StepDrain,
	} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			replacedCollections(t, class, step)
		})
	}
}

func replacedCollections(t *testing.T, class record.FenceClass, step upgradestate.Step) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kinds := []string{}
	for k := range ways {
		kinds = append(kinds, fmt.Sprintf("{from: %s, to: %[1]s, lens: packages.yaml, fence: %s}", k, class))
	}
	r := &replacing{ctx: ctx, version: "v1", has: map[string]map[string]int{}, keeps: class == record.FenceValidator}
	r.system = newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}", toSwitch: "{deadline: 5m, maxLag: 3s}", kinds: "[" + strings.Join(kinds, ", ") + "]"})
	for k := range ways {
		r.has[k] = map[string]int{}
		for i := range 100 {
			r.has[k][fmt.Sprintf("d%03d", i)] = i
		}
		r.insert(k, r.has[k])
	}
	controller := r.stepping("controller").ready(ctx)
	defer r.writes()()

	r.replace("copy")
	r.await(ctx, "the replacements in the copy", noted("v1", 1))
	r.follow("copy")

	r.beginHolding(ctx, "v2")
	ready := func(d upgradestate.Deployment) bool { return d.Upgrade != nil && len(d.Upgrade.ReadyShards) == ring }
	d := r.await(ctx, "readiness", ready)
	seen := d.Revision
	ns, _ := d.Namespace("v1")
	dropped, _ := ns.Kind("dropped")
	r.awaitShown(ctx, func(shown *dbv1.Replaced) bool { return shown == nil })
	r.pauses(ctx, true) // so that it stays visible what is copied anew
	r.replace("held at ready")
	r.await(ctx, "reports to be withdrawn", func(d upgradestate.Deployment) bool { return d.Revision > seen && !ready(d) })
	r.await(ctx, "the replacements at ready", noted("v1", dropped.Replaced+1))
	r.awaitShown(ctx, func(shown *dbv1.Replaced) bool {
		i := slices.IndexFunc(shown.GetKinds(), func(k *dbv1.ReplacedKind) bool { return k.GetKind() == "dropped" })
		return i >= 0 && shown.GetKinds()[i].GetWas() == dropped.ID && shown.GetKinds()[i].GetId() != dropped.ID && shown.GetKinds()[i].GetAt() != "" &&
			shown.GetVersion() == "v1" && shown.GetTo() == "v2" && shown.GetTotal() > shown.GetCopied() && shown.GetReportingShards() == ring && shown.GetComparedShards() < ring
	})
	r.pauses(ctx, false)
	r.follow("held at ready")
	r.await(ctx, "readiness again", ready)
	r.awaitShown(ctx, func(shown *dbv1.Replaced) bool { return shown == nil })

	r.kill(controller)
	r.replace("between two runs")
	controller = r.stepping("again").ready(ctx)
	r.await(ctx, "the replacements between two runs", noted("v1", dropped.Replaced+2))
	r.follow("between two runs")
	r.await(ctx, "readiness after them", ready)

	r.goOn(ctx)
	for controller.awaitReached(ctx) != string(step) {
		controller.order(orderStep)
	}
	r.replace("during the switch")
	controller.order(orderRun)
	d = r.await(ctx, "the attempt to be given up", func(d upgradestate.Deployment) bool { return d.Upgrade == nil || d.Upgrade.Failures > 0 })
	if d.Upgrade == nil || !strings.Contains(d.Upgrade.LastFailure, "replaced during the switch") {
		t.Errorf("the attempt did not end for the replacement: %+v", d.Upgrade)
	}
	r.await(ctx, "the flip", flipped("v2"))
	r.mu.Lock()
	r.version = "v2"
	r.mu.Unlock()
	r.follow("after the switch")

	r.replace("before a rollback")
	r.await(ctx, "the replacements before a rollback", noted("v2", 1))
	r.follow("before a rollback")
	r.kill(controller)
	r.replace("between two runs after the switch")
	controller = r.stepping("third").ready(ctx)
	r.await(ctx, "the replacements between two runs after the switch", noted("v2", 2))
	r.follow("between two runs after the switch")
	r.beginTo(ctx, "v1")
	for controller.awaitReached(ctx) != string(step) {
		controller.order(orderStep)
	}
	r.replace("during the switch")
	controller.order(orderRun)
	d = r.await(ctx, "the rollback's attempt to be given up", func(d upgradestate.Deployment) bool { return d.Upgrade == nil || d.Upgrade.Failures > 0 })
	if d.Upgrade == nil || !strings.Contains(d.Upgrade.LastFailure, "replaced during the switch") {
		t.Errorf("the rollback's attempt did not end for the replacement: %+v", d.Upgrade)
	}
	r.await(ctx, "the flip back", flipped("v1"))
	r.mu.Lock()
	r.version = "v1"
	r.mu.Unlock()
	r.follow("after the rollback")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.acks < 100 {
		t.Errorf("only %d writes were acknowledged", r.acks)
	}
}

// TestCollectionDroppedForGood: while no collection has the name nothing is compared, the target
// is kept, and each report says what is waited for; the switch goes on once there is one.
func TestCollectionDroppedForGood(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	s.fill(ctx, newLedger("package"), 50)
	s.controller("controller", breakPoint{}).ready(ctx)
	s.beginHolding(ctx, "v2")
	ready := func(d upgradestate.Deployment) bool { return d.Upgrade != nil && len(d.Upgrade.ReadyShards) == ring }
	s.await(ctx, "readiness", ready)
	reports := func(what string) {
		t.Helper()
		s.awaitReadiness(ctx, "the reason", func(o *switchover.Readiness) bool {
			return strings.Contains(strings.Join(o.WaitsFor, "; "), what)
		})
		eventually(ctx, t, "shards say it", func() error {
			ps, err := s.record.Progress(ctx)
			for _, p := range ps {
				if !strings.Contains(p.WaitsFor, what) {
					return fmt.Errorf("shard %d waits for %q", p.Shard, p.WaitsFor)
				}
			}
			return err
		})
	}
	kind := func(d upgradestate.Deployment) upgradestate.Kind {
		ns, _ := d.Namespace("v1")
		k, _ := ns.Kind(packagesKind)
		return k
	}
	r := &replacing{system: s, ctx: ctx, version: "v1"}
	r.rename(packagesKind, "elsewhere")
	reports("was renamed to elsewhere, and no collection has its name: rename it back")
	d, err := s.record.Get(ctx)
	if err != nil || ready(d) {
		t.Fatalf("ready without a collection: %+v, %v", d.Upgrade, err)
	}
	if _, err := s.db["v1"].Collection("elsewhere").DeleteOne(ctx, bson.D{{Key: "_id", Value: packageKey(1)}}); err != nil {
		t.Fatal(err)
	}
	r.rename("elsewhere", packagesKind)
	d = s.await(ctx, "readiness with the collection back", ready)
	if k := kind(d); k.Replaced != 1 || k.ID == "" {
		t.Errorf("away and back, the kind is %+v", k)
	}
	if err := s.db["v1"].Collection(packagesKind).Drop(ctx); err != nil {
		t.Fatal(err)
	}
	s.await(ctx, "reports to be withdrawn", func(d upgradestate.Deployment) bool { return !ready(d) })
	const what = "no collection has its name: restore or create it"
	reports(what)
	if r := s.recover(ctx, "--confirm", s.name); r.code == 0 || !strings.Contains(r.stderr, "there is nothing to recover") || !strings.Contains(r.stderr, what) {
		t.Errorf("recover: exit %d: %s", r.code, r.stderr)
	}
	ns, _ := d.Namespace("v2")
	k, _ := ns.Kind(packagesKind)
	if n, err := s.db["v2"].Collection(k.Physical).CountDocuments(ctx, bson.D{}); err != nil || n != 49 {
		t.Errorf("the target has %d documents, %v", n, err)
	}
	if _, err := s.db["v1"].Collection(packagesKind).InsertOne(ctx, packageDoc("v1", packageKey(7), 0)); err != nil {
		t.Fatal(err)
	}
	s.goOn(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 1 {
		t.Errorf("the target has %d documents, %v", n, err)
	}
}
