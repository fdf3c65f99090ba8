package switchover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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

// TestFenceIsLiftedBeforeTheFlip: somebody lifts a fence after the drain, and a client writes. The
// target lacks that write, so the attempt ends, and the next one takes it along: whether the driver
// finds the fence missing, or the check of fences has put it back before.
func TestFenceIsLiftedBeforeTheFlip(t *testing.T) {
	t.Parallel()
	for _, class := range []record.FenceClass{record.FenceValidator, record.FenceView, record.FenceWriteBlock} {
		for _, upheld := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, put back %t", class, upheld), func(t *testing.T) {
				t.Parallel()
				var w *world
				var looks atomic.Int64
				lift := faultstore.InjectorFunc(func(op faultstore.Op) faultstore.Fault {
					if op.Command != faultstore.Fence || looks.Add(1) != 2 {
						return faultstore.Fault{}
					}
					ctx, v1 := t.Context(), w.db["v1"]
					if err := errors.Join(v1.Foreign().Unfence(ctx, "apps"), v1.Foreign().Put(ctx, "apps", doc("slipped"))); err != nil {
						t.Error(err)
					}
					if upheld {
						d := w.get(ctx)
						ns, _ := d.Namespace("v1")
						k, _ := ns.Kind("apps")
						f := record.Fence{Class: class, Token: record.Token{Kind: "apps", Name: "apps", ID: k.ID, Fixed: true}, To: k.Fenced, Restore: k.Restore}
						found, err := v1.Uphold(ctx, f, nil)
						if err != nil || len(found) != 1 {
							t.Errorf("found %v, %v", found, err)
							return faultstore.Fault{}
						}
						w.apply(ctx, upgradestate.Breached{Breach: upgradestate.Breach{Version: "v1", Kind: "apps", What: found[0].What}})
					}
					return faultstore.Fault{}
				})
				kinds := fixed(class)
				kinds.inject = map[string]faultstore.Injector{"v1": lift}
				inBubble(t, kinds, func(ctx context.Context, made *world) {
					w = made
					w.report(ctx, 0)
					w.drive(ctx, switchover.Config{})
					d := w.await(ctx, "the end of the first attempt", between)
					if !strings.Contains(d.Upgrade.LastFailure, "fence") {
						t.Errorf("given up because %s", d.Upgrade.LastFailure)
					}
					if all := upgradestate.OpenBreaches(d); len(all) > 0 {
						t.Errorf("the next attempt takes the write along, and yet: %+v", all)
					}
					w.await(ctx, "the flip", open("v2"))
				})
			})
		}
	}
}
