package identity_test

import (
	"context"
	"errors"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// TestLateFenceOfARestoredDatabase: the old version's database is restored from before the switch. A
// controller has looked whether it was restored, before that, and looks after the version's fence
// while the version is made anew. At no moment does it move the collection from where the record
// takes it over.
func TestLateFenceOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"never", "before its end", "after its end", "after the record"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, record.FenceView)
			ctx, db := t.Context(), w.db["v1"]
			night := db.Cluster().Backup(func() {})
			noted := map[string]bool{}
			run := func(id, to string) {
				w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: to, TransformHash: "h"}})
				w.apply(upgradestate.Begin{ID: id, TargetVersion: to, TransformHash: "h"})
				for w.step(noted) != "" {
				}
			}
			run("first", "v2")
			w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h"}})
			ns, _ := w.d.Namespace("v1")
			k, _ := ns.Kind("packages")
			if k.Fenced == "" {
				t.Fatalf("the kind is not fenced: %+v", k)
			}
			db.Cluster().Restore(night, func() {})
			fence := record.Fence{Class: record.FenceView, Token: syncer.TokenOf(k), To: k.Fenced, Restore: k.Restore}
			late := func(now string) {
				if now == moment {
					_, err := db.Uphold(ctx, fence, nil)
					w.ok(err)
				}
			}
			reform := identity.Reform{
				Deployments: w,
				Unfence: func(ctx context.Context, is upgradestate.Kind) error {
					late("before its end")
					if is.Kind != k.Kind {
						t.Errorf("the fence of %s is ended", is.Kind)
					}
					return db.Unfence(ctx, record.Fence{Class: record.FenceView, Token: record.Token{Kind: is.Kind, Name: is.Kind, ID: is.ID, Fixed: true}, To: is.Fenced})
				},
				Apply: func(_ context.Context, e upgradestate.Event) error {
					late("after its end")
					w.apply(e)
					late("after the record")
					return nil
				},
			}
			w.ok(reform.Do(ctx, "v1", db, "restored"))
			for w.step(noted) != "" {
			}
			w.ok(w.check())
			run("back", "v1")
			if v := w.writable(); v != "v1" {
				t.Errorf("clients can write %q", v)
			}
		})
	}
}

// TestRefusedRebuildEndsNoFence: an ended fence is never restored, so that a rebuild which cannot
// happen now must leave it.
func TestRefusedRebuildEndsNoFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	db := w.db["v1"]
	night := db.Cluster().Backup(func() {})
	noted := map[string]bool{}
	w.apply(upgradestate.Begin{ID: "first", TargetVersion: "v2", TransformHash: "h"})
	for w.step(noted) != "" {
	}
	db.Cluster().Restore(night, func() {})
	w.d.Upgrade = &upgradestate.Upgrade{TargetVersion: "v3", State: upgradestate.Switching}
	reform := identity.Reform{
		Deployments: w,
		Unfence: func(context.Context, upgradestate.Kind) error {
			t.Error("the fence is ended")
			return nil
		},
		Apply: func(context.Context, upgradestate.Event) error { return upgradestate.ErrOutdated },
	}
	if err := reform.Do(t.Context(), "v1", db, "restored"); !errors.Is(err, upgradestate.ErrOutdated) {
		t.Errorf("during a switch to another version: %v", err)
	}
}

// TestChoiceAfterARestore: the served version's database was restored from an older backup. Its mark
// is brought up to date, and would decide for it. A person chooses, and either version is rebuilt.
func TestChoiceAfterARestore(t *testing.T) {
	t.Parallel()
	for _, choice := range []string{"v1", "v2"} {
		w := newWorld(t, record.FenceView)
		noted := map[string]bool{}
		w.apply(upgradestate.Begin{ID: "first", TargetVersion: "v2", TransformHash: "h"})
		for w.step(noted) != "" {
		}
		w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h"}})
		e, err := identity.Gather(t.Context(), deploymentName, w.markers())
		w.ok(err)
		e.Doubt(w.d)
		if _, _, err := e.Current("v1"); err == nil {
			t.Error("v1 is chosen where the marks decide for v2")
		}
		w.apply(upgradestate.FoundRestored{Restored: upgradestate.Restored{Version: "v2", What: "older", Older: true}, Epoch: w.d.Epoch})
		e.Doubt(w.d)
		var undecided *identity.UndecidedError
		if _, _, err := e.Current(""); !errors.As(err, &undecided) {
			t.Errorf("without a choice: %v", err)
		}
		current, _, err := e.Current(choice)
		w.ok(err)
		d, _, err := e.Rebuild(current)
		w.ok(err)
		w.ok(identity.Announce(t.Context(), d, "r1", w.markers()))
		d.Revision, w.d = w.d.Revision+1, d
		w.ok(identity.Finalize(t.Context(), d, w.markers()))
		for w.step(noted) != "" {
		}
		if v := w.writable(); v != choice {
			t.Errorf("chosen is %s, and clients can write %q", choice, v)
		}
	}
}
