package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"dbcontroller.dev/upgradestate"
)

// documents is how many the application has in tests that copy under traffic: about 500
// in each range, which is a page of the copy.
const documents = 500 * ring

// fewDocuments is how many it has where nothing interrupts the copy.
const fewDocuments = 100 * ring

// TestKillController kills a controller with SIGKILL at a chosen place of an upgrade
// under traffic: one of two, or the only one, which is then started again. The upgrade
// finishes by itself, nothing is lost, and what was copied is not copied again. The simulation's
// test of this name has both at each place.
func TestKillController(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		at          breakPoint
		controllers int
		prove       func(k *killing, ctx context.Context) // before the kill
	}{
		{breakPoint{At: atLoad, N: 2}, 2, (*killing).awaitCheckpoint},
		{breakPoint{At: atLoad, N: 2}, 1, (*killing).awaitCheckpoint}, // who copies the rest differs
		{breakPoint{At: atApply, N: 3}, 1, nil},
		{breakPoint{At: beforeFence, N: 2}, 2, inStep(upgradestate.StepFence)},
		{breakPoint{At: afterFence, N: 2}, 1, inStep(upgradestate.StepFence)},
		{breakPoint{At: beforeFlip, N: 1}, 2, inStep(upgradestate.StepSealSource)},
	} {
		t.Run(fmt.Sprintf("%s/%d controllers", tc.at.At, tc.controllers), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			newKilling(ctx, t, tc.at, tc.controllers).run(ctx, tc.prove)
		})
	}
}

// killing is one run of TestKillController. The controller "first" drives and is killed.
type killing struct {
	*system
	at          breakPoint
	controllers int
	copies      *copyWatch
	traffic     *traffic
	all         []*child // controllers

	stored int64 // records stored as copied at the kill
	before int   // documents that other controllers had loaded by then
}

func newKilling(ctx context.Context, t *testing.T, at breakPoint, controllers int) *killing {
	t.Helper()
	set := settings{}
	if at.At == atApply {
		set.copy = "{auto: true, workers: 2}"
	}
	k := &killing{system: newSystem(ctx, t, set), at: at, controllers: controllers}
	k.copies = k.watchCopy(ctx)
	k.traffic = newTraffic(ctx, k.system, documents)
	return k
}

func (k *killing) start(ctx context.Context, id string, at breakPoint) *child {
	k.t.Helper()
	c := k.controller(id, at).ready(ctx)
	k.all = append(k.all, c)
	return c
}

func (k *killing) run(ctx context.Context, prove func(*killing, context.Context)) {
	t := k.t
	first := k.start(ctx, "first", k.at)
	eventually(ctx, t, "the first controller leads", func() error {
		if leader := k.leader(ctx); leader != "first" {
			return fmt.Errorf("leader is %q", leader)
		}
		return nil
	})
	if k.controllers == 2 {
		k.start(ctx, "second", breakPoint{})
		k.awaitShards(ctx, "first", "second")
	}
	server := k.server("server", 0).ready(ctx)
	if k.at.At == atApply {
		k.awaitSync(ctx)
		k.traffic.start(ctx, server)
		k.traffic.awaitWrites(ctx, "v1", 10)
		first.arm(ctx)
	} else {
		k.traffic.start(ctx, server)
		k.traffic.awaitWrites(ctx, "v1", 10)
		k.begin(ctx)
	}
	if place := first.awaitReached(ctx); place != k.at.At {
		t.Fatalf("reached %q", place)
	}
	if prove != nil {
		prove(k, ctx)
	}
	k.stored, k.before = k.copies.copied(func(string) bool { return true }), k.loads(first)
	k.kill(first)
	killed := time.Now()
	if k.controllers == 1 {
		k.start(ctx, "first-again", breakPoint{})
	}
	if k.at.At == atApply {
		k.begin(ctx)
	}
	k.finish(ctx, first, killed)
}

// finish sees the upgrade through and checks everything.
func (k *killing) finish(ctx context.Context, first *child, killed time.Time) {
	t := k.t
	t.Helper()
	ended, how := k.awaitEnd(ctx)
	if ended.CurrentVersion == "v1" {
		k.begin(ctx)
		ended, _ = k.awaitEnd(ctx)
	}
	took := time.Since(killed)
	if ended.CurrentVersion != "v2" {
		t.Fatalf("%s is active after the second begin-upgrade", ended.CurrentVersion)
	}
	k.traffic.awaitWrites(ctx, "v2", 10)
	k.traffic.settle(ctx, ended)
	k.checkCopies(first)
	begun, switches := k.copies.started()
	if switches == 0 {
		t.Error("no switch was seen")
	}
	bbs, n := k.traffic.processes.pause(begun)
	app, m := k.traffic.packages.pause(begun)
	t.Logf("KILL %s, %d controllers: upgrade %s, %s after the kill; write pause of the BBS API %s (of %d writes), of the plain driver %s (of %d); switches %d, %v",
		k.at.At, k.controllers, how, took.Round(time.Millisecond), bbs.Round(time.Millisecond), n, app.Round(time.Millisecond), m, switches, ended.LastSwitch.Millis)
}

// awaitEnd waits for the end of the upgrade that runs: the flip, or an abort.
func (k *killing) awaitEnd(ctx context.Context) (d upgradestate.Deployment, how string) {
	k.t.Helper()
	running := ""
	d = k.await(ctx, "the end of the upgrade", func(d upgradestate.Deployment) bool {
		if d.Upgrade != nil {
			running = d.Upgrade.ID
		}
		return flipped("v2")(d) || d.Upgrade == nil && d.LastUpgradeID != "" && (running == "" || running == d.LastUpgradeID) && flipped("v1")(d)
	})
	if d.CurrentVersion == "v2" {
		return d, "finished by itself"
	}
	return d, "aborted by itself, and finished when begun again"
}

// loads is how many documents controllers other than the one killed have loaded.
func (k *killing) loads(first *child) (n int) {
	for _, c := range k.all {
		if c != first {
			n += c.loads()
		}
	}
	return n
}

// checkCopies: what was stored as copied at the kill was not loaded again by anybody.
func (k *killing) checkCopies(first *child) {
	k.t.Helper()
	const (
		created  = appClients * ownDocuments // meanwhile, or again
		inFlight = 2 * 2 * documents / ring  // pages of the other controller's two workers; they are only about equal
	)
	after := k.loads(first) - k.before
	most := max(0, documents-int(k.stored)) + k.traffic.processes.Len() + created + inFlight
	if after > most || k.at.At == atLoad && after == 0 {
		k.t.Errorf("%d documents were loaded after the kill, when %d records were stored as copied; want %d at most", after, k.stored, most)
	}
}

// awaitCheckpoint waits until some of the first controller's copy is stored.
func (k *killing) awaitCheckpoint(ctx context.Context) {
	k.t.Helper()
	owners := k.owners(ctx)
	eventually(ctx, k.t, "a checkpoint of the copy", func() error {
		const aPage = 50 // the first one of a kind is small: how large its records are is not known yet
		if n := k.copies.copied(func(shard string) bool { return owners[shard] == "first" }); n < aPage {
			return fmt.Errorf("%d records are stored as copied", n)
		}
		return nil
	})
}

// inStep makes sure that the kill strikes in a step of the switch.
func inStep(step upgradestate.Step) func(*killing, context.Context) {
	return func(k *killing, ctx context.Context) {
		k.t.Helper()
		d, err := k.record.Get(ctx)
		if err != nil {
			k.t.Fatal(err)
		}
		if d.Upgrade == nil || d.Upgrade.Step != step {
			k.t.Fatalf("the upgrade is %+v, want step %s", d.Upgrade, step)
		}
	}
}
