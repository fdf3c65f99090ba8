package switchover_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestStrayEndsTheAttempt: a fence that finds another collection under the kind's name is not
// tried until the deadline. What the abort cannot bring back into the kind is in the record, and
// the upgrade goes on.
func TestStrayEndsTheAttempt(t *testing.T) {
	t.Parallel()
	for _, refence := range []int64{1, 2} { // the fence itself, and the look at it before the flip
		t.Run(fmt.Sprint(refence), func(t *testing.T) {
			t.Parallel()
			taken := faultstore.Count(faultstore.On(faultstore.Nth(refence, faultstore.Fault{Before: fmt.Errorf("fence: %w", record.ErrTaken)}), faultstore.Fence))
			kept := &record.KeptError{Kept: []record.Breach{{What: "3 are in aside", Aside: "aside", Count: 3}}}
			left := faultstore.Count(faultstore.On(faultstore.Nth(1, faultstore.Fault{After: fmt.Errorf("unfence: %w", kept)}), faultstore.Unfence))
			kinds := fixed(record.FenceView)
			kinds.inject = map[string]faultstore.Injector{"v1": faultstore.Any(taken, left)}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{})
				d := w.await(ctx, "the end of the first attempt", between)
				if !strings.Contains(d.Upgrade.LastFailure, record.ErrTaken.Error()) {
					t.Errorf("given up because %s", d.Upgrade.LastFailure)
				}
				if all := upgradestate.OpenBreaches(d); len(all) != 1 || all[0].Version != "v1" || all[0].Kind != "apps" || all[0].Aside != "aside" || all[0].Count != 3 {
					t.Errorf("breaches %+v", all)
				}
				w.check(w.db["v1"].Foreign().Put(ctx, "apps", doc("again")))
				w.await(ctx, "the flip", open("v2"))
				taken.AssertFired(t, 1)
				left.AssertFired(t, 1)
			})
		})
	}
}
