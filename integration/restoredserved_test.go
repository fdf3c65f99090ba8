package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"dbcontroller.dev/upgradestate"
)

// decides has an operator decide about the restored database of a version. The first call has no
// confirmation: the command names the records that the choice gives up, and changes nothing.
func (r *restorable) decides(ctx context.Context, version, choice string, gives ...string) {
	r.t.Helper()
	r.await(ctx, "the restore of "+version+" is seen", func(d upgradestate.Deployment) bool {
		found, ok := upgradestate.WasRestored(d)
		return ok && found.Version == version
	})
	call := func(args ...string) result {
		api, _ := r.controllers[len(r.controllers)-1].addresses()
		return execute(ctx, r.t, r.env, append(args, "--server", api)...)
	}
	var shown result
	eventually(ctx, r.t, "the decision is asked for", func() error {
		if shown = call("restored", choice); !strings.Contains(shown.stderr, "--confirm ") {
			return errors.New(shown.stderr)
		}
		return nil
	})
	for _, want := range append(gives, "nothing is changed yet") {
		if shown.code == 0 || !strings.Contains(shown.stderr, want) {
			r.t.Errorf("it does not say %q: %d %s", want, shown.code, shown.stderr)
		}
	}
	if got := call("get", "deployment"); !strings.Contains(got.stdout, "RESTORED") || !strings.Contains(got.stdout, "'restored --follow'") || !strings.Contains(got.stdout, "'restored --keep'") || strings.Contains(got.stdout, "rollback safe") {
		r.t.Errorf("get shows %s", got.stdout)
	}
	if got := call("restored", choice, "--confirm", shown.confirmation(r.t)); got.code != 0 {
		r.t.Fatalf("%s: %s", choice, got.stderr)
	}
	r.await(ctx, "nothing is left to be decided", func(d upgradestate.Deployment) bool { return upgradestate.RestoredLine(d) == "" })
}

// TestRestoredServed restores the database of the served version in every phase (some of them in make
// soak). The upgrade goes on only after an operator has decided, and both versions then have the chosen
// data.
func TestRestoredServed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRestorable(ctx, t, "{auto: false, workers: 2}")
	c := r.controller("one", breakPoint{}).ready(ctx)
	gives := fmt.Sprintf("of %d compared groups, 40 are only in ", restorableDocs+40)

	// Held at ready, and asked to switch: the restored state counts.
	r.begin(ctx)
	r.ready(ctx)
	at, before := r.backup(ctx, "v1"), maps.Clone(r.told)
	r.change(ctx, "v1", 1)
	r.follows(ctx, "v2")
	r.restore(ctx, "v1", at)
	r.decides(ctx, "v1", "--follow", gives, "--follow drops the last two, as they are in v2")
	r.told = before
	r.ready(ctx)
	r.switches(ctx, "v2")

	// After the switch: what the old version has is served again.
	r.follows(ctx, "v1")
	at = r.backup(ctx, "v2")
	r.change(ctx, "v2", 2)
	r.follows(ctx, "v1")
	r.restore(ctx, "v2", at)
	r.decides(ctx, "v2", "--keep", gives, "--keep drops the first two, as they are in v2")
	r.await(ctx, "v1 is served again", flipped("v1"))
	if err := r.differs(ctx, r.db["v1"].Collection(packagesKind), r.told); err != nil {
		t.Errorf("kept is v1: %v", err)
	}

	if soaks() {
		c = r.restoredBetweenRuns(ctx, c, gives)
	}

	// In the switch, before the fence: the attempt ends, and the restored state counts.
	r.kill(c)
	c = r.stepping("three").ready(ctx)
	r.begin(ctx)
	r.ready(ctx)
	at, before = r.backup(ctx, "v1"), maps.Clone(r.told)
	r.change(ctx, "v1", 6)
	r.follows(ctx, "v2")
	r.askSwitch(ctx)
	for c.awaitReached(ctx) != string(upgradestate.StepHold) {
		c.order(orderStep)
	}
	r.restore(ctx, "v1", at)
	c.order(orderRun)
	r.decides(ctx, "v1", "--follow", gives, "--follow drops the last two, as they are in v2")
	r.told = before
	r.served(ctx, "v2")
	r.gaveUp(ctx)
}

// restoredBetweenRuns restores the served version between two runs of controllers, and then before a
// rollback. It begins and ends with v1 served.
func (r *restorable) restoredBetweenRuns(ctx context.Context, c *child, gives string) *child {
	r.t.Helper()
	r.begin(ctx)
	r.ready(ctx)
	at := r.backup(ctx, "v1")
	r.change(ctx, "v1", 3)
	r.follows(ctx, "v2")
	r.kill(c)
	r.restore(ctx, "v1", at)
	c = r.controller("two", breakPoint{}).ready(ctx)
	r.decides(ctx, "v1", "--keep", gives)
	r.await(ctx, "v2 is served", flipped("v2"))
	if err := r.differs(ctx, r.db["v2"].Collection(packagesKind), r.told); err != nil {
		r.t.Errorf("kept is v2: %v", err)
	}

	// And the way on is open: v1 is made anew from it.
	r.change(ctx, "v2", 4)
	r.beginTo(ctx, "v1")
	r.ready(ctx)

	// Before this rollback: the restored state counts, and is what the old version gets.
	at = r.backup(ctx, "v2")
	before := maps.Clone(r.told)
	r.change(ctx, "v2", 5)
	r.follows(ctx, "v1")
	r.restore(ctx, "v2", at)
	r.decides(ctx, "v2", "--follow", gives, "--follow drops the last two, as they are in v1")
	r.told = before
	r.ready(ctx)
	r.switches(ctx, "v1")
	return c
}
