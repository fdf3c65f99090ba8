package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/upgradestate"
)

// TestRestoredPassive restores the database of the version that is not served, in every phase (some
// of them in make soak): nothing that was acknowledged is lost, and the upgrade goes on by itself.
func TestRestoredPassive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRestorable(ctx, t, "{auto: false, workers: 2, maxRate: 100}")
	c := r.controller("one", breakPoint{}).ready(ctx)

	// In the copy.
	early := r.backup(ctx, "v2")
	r.begin(ctx)
	eventually(ctx, t, "a part is copied", func() error {
		n, err := r.db["v2"].Collection("packages.n1").CountDocuments(ctx, bson.D{})
		if err == nil && n < restorableDocs/4 {
			err = fmt.Errorf("%d documents", n)
		}
		return err
	})
	r.restore(ctx, "v2", early)
	r.rebuilds(ctx, "v2", 0)
	r.change(ctx, "v1", 1)
	r.pace(ctx)
	r.ready(ctx)

	if soaks() { // held at ready, which is the smallest form
		was := r.generation(ctx, "v2")
		at := r.backup(ctx, "v2")
		r.change(ctx, "v1", 2)
		r.follows(ctx, "v2")
		r.restore(ctx, "v2", at)
		r.rebuilds(ctx, "v2", was)
		r.ready(ctx)
		r.follows(ctx, "v2")
	}

	// Between two runs of controllers, and with a change that none of them has seen yet.
	was := r.generation(ctx, "v2")
	at := r.backup(ctx, "v2")
	r.change(ctx, "v1", 3)
	r.follows(ctx, "v2")
	r.kill(c)
	r.restore(ctx, "v2", at)
	c = r.stepping("two").ready(ctx)
	r.rebuilds(ctx, "v2", was)
	r.ready(ctx)

	// In the switch. Its application waits there, so that the last change comes before it.
	at = r.backup(ctx, "v2")
	r.change(ctx, "v1", 7)
	r.follows(ctx, "v2")
	r.askSwitch(ctx)
	r.walk(ctx, c, "v2", []upgradestate.Step{upgradestate.StepFence, upgradestate.StepSealTarget}, func(upgradestate.Step) { r.restore(ctx, "v2", at) })
	r.served(ctx, "v2")
	r.gaveUp(ctx)

	// After the switch: the old version is as it was before it, open to its application.
	r.change(ctx, "v2", 4)
	r.follows(ctx, "v1")
	old := r.backup(ctx, "v1")
	was = r.generation(ctx, "v1")
	r.change(ctx, "v2", 5)
	r.follows(ctx, "v1")
	r.restore(ctx, "v1", old)
	r.rebuilds(ctx, "v1", was)
	r.follows(ctx, "v1")

	if soaks() { // before the rollback, with no controller meanwhile
		was = r.generation(ctx, "v1")
		r.change(ctx, "v2", 6)
		r.follows(ctx, "v1")
		r.kill(c)
		r.restore(ctx, "v1", old)
		c = r.stepping("three").ready(ctx)
		r.rebuilds(ctx, "v1", was)
	}
	r.beginTo(ctx, "v1")
	r.ready(ctx)

	// In the switch back.
	at = r.backup(ctx, "v1")
	r.change(ctx, "v2", 8)
	r.follows(ctx, "v1")
	r.askSwitch(ctx)
	r.walk(ctx, c, "v1", []upgradestate.Step{upgradestate.StepDrain}, func(upgradestate.Step) { r.restore(ctx, "v1", at) })
	r.served(ctx, "v1")
	r.gaveUp(ctx)
}

// TestRestoredFromBeforeTheSwitch restores backups at which nothing of the present is right. The
// target's is from before the latest changes, and the switch is asked for at once. The old
// version's is from before the switch, in which its collection has its open name and no fence. The
// served version's is from before the switch back, in which its collection has a hidden name.
func TestRestoredFromBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRestorable(ctx, t, "{auto: false, workers: 2}")
	c := r.stepping("one").ready(ctx)
	r.begin(ctx)
	r.ready(ctx)
	night := r.backup(ctx, "v1")
	at := r.backup(ctx, "v2")
	r.change(ctx, "v1", 1)
	r.follows(ctx, "v2")
	r.restore(ctx, "v2", at)
	// And once more right before the flip.
	r.askSwitch(ctx)
	r.walk(ctx, c, "v2", []upgradestate.Step{upgradestate.StepSealSource}, func(upgradestate.Step) { r.restore(ctx, "v2", at) })
	r.served(ctx, "v2")
	r.gaveUp(ctx)
	c.order(orderRun)

	r.change(ctx, "v2", 2)
	r.follows(ctx, "v1")
	was := r.generation(ctx, "v1")
	r.restore(ctx, "v1", night)
	r.change(ctx, "v2", 3)
	r.rebuilds(ctx, "v1", was)
	r.follows(ctx, "v1")
	hidden := r.backup(ctx, "v1") // its collection has a hidden name
	r.beginTo(ctx, "v1")
	r.switches(ctx, "v1")

	// The served version's, from before the switch back: the command that the deployment names
	// serves what v2 has.
	r.change(ctx, "v1", 4)
	r.follows(ctx, "v2")
	r.restore(ctx, "v1", hidden)
	eventually(ctx, t, "the command is named", func() error {
		if shown := r.cli(ctx, "get", "deployment").stdout; !strings.Contains(shown, "'recover --current' with another version") {
			return errors.New(shown)
		}
		return nil
	})
	if code := c.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.forget(c)
	confirm := r.recover(ctx, "--current", "v2").confirmation(t)
	if res := r.recover(ctx, "--current", "v2", "--confirm", confirm); res.code != 0 || !strings.Contains(res.stderr, "done: "+r.name+" is at v2") {
		t.Fatalf("%+v", res)
	}
	r.controller("later", breakPoint{}).listening(ctx)
	r.served(ctx, "v2")

	// And the way on is open: v1 is made anew from it.
	r.change(ctx, "v2", 5)
	r.beginTo(ctx, "v1")
	r.ready(ctx)
	r.switches(ctx, "v1")
}
