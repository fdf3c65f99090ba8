package upgradestate_test

import (
	"fmt"

	us "dbcontroller.dev/upgradestate"
)

// A driver reads the record, does what Actions says, and applies the event that reports
// it. Here every operation succeeds at once.
func Example() {
	d := us.New("services/bbs/deployments/eu", "v1", 2)
	for _, e := range []us.Event{
		us.AnnounceNamespace{Namespace: us.Namespace{Version: "v1", Kinds: []us.Kind{{Kind: "lrps", Physical: "lrps.n1"}}}},
		us.AnnounceNamespace{Namespace: us.Namespace{Version: "v2", Kinds: []us.Kind{{Kind: "lrps", Physical: "lrps.n1"}}}},
		us.AnnounceAvailable{Available: us.Available{TargetVersion: "v2", TransformHash: "h"}},
		us.Begin{ID: "u1", TargetVersion: "v2", Shards: 2},
	} {
		var err error
		if d, err = us.Apply(d, e); err != nil {
			fmt.Println(err)
			return
		}
	}
	for actions := us.Actions(d); len(actions) > 0; actions = us.Actions(d) {
		for _, a := range actions {
			step := "INITIAL_SYNCING"
			if d.Upgrade.Step != us.StepNone {
				step = string(d.Upgrade.Step)
			}
			fmt.Printf("%s: %T\n", step, a)
			next, err := us.Apply(d, eventOf(a))
			if err != nil {
				fmt.Println(err)
				return
			}
			d = next
		}
	}
	_, places := us.WritePlaces(d)
	fmt.Println(d.CurrentVersion, "epoch", d.Epoch, "writes", places[0].Name)
	// Output:
	// INITIAL_SYNCING: upgradestate.AwaitReports
	// INITIAL_SYNCING: upgradestate.StartSwitch
	// HOLD: upgradestate.Hold
	// FENCE: upgradestate.Execute
	// DRAIN: upgradestate.AwaitReports
	// DRAIN: upgradestate.Drained
	// SEAL_TARGET: upgradestate.Execute
	// SEAL_SOURCE: upgradestate.Execute
	// SEAL_SOURCE: upgradestate.Flip
	// v2 epoch 2 writes lrps.n2
}
