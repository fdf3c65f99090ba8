package switchover_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// fixed is one fixed-name kind of a class in each version, or a managed one for "".
func fixed(class record.FenceClass) kindsOf {
	if class == "" {
		return simple
	}
	return kindsOf{
		v1: []record.KindSpec{{Name: "apps", Fixed: true}}, v2: []record.KindSpec{{Name: "apps2", Fixed: true}}, fence: class,
	}
}

// fences notes the names and marks of all fences that a driver sends.
type fences struct {
	mu   sync.Mutex
	sent []string
}

func (f *fences) Inject(op faultstore.Op) faultstore.Fault {
	if op.Command == faultstore.Fence {
		f.mu.Lock()
		f.sent = append(f.sent, op.To)
		f.mu.Unlock()
	}
	return faultstore.Fault{}
}

func (f *fences) count(to string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sent {
		if s == to {
			n++
		}
	}
	return n
}

// TestFixedFencesAreConfirmedAgain right before the flip: somebody may have taken one away, which ends the
// attempt. Managed kinds do not need it.
func TestFixedFencesAreConfirmedAgain(t *testing.T) {
	t.Parallel()
	for _, class := range []record.FenceClass{"", record.FenceView, record.FenceValidator, record.FenceWriteBlock} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			spy := &fences{}
			kinds := fixed(class)
			kinds.inject = map[string]faultstore.Injector{"v1": spy}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				source := w.db["v1"]
				if class != "" {
					w.check(source.Foreign().Put(ctx, "apps", doc("before")))
				}
				var fenced upgradestate.Kind
				before := 0
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Checks: checks{seal: func(d upgradestate.Deployment) error {
					ns, _ := d.Namespace("v1")
					fenced = ns.Kinds[0]
					before = spy.count(fenced.Fenced)
					if class == "" {
						return nil
					}
					if err := source.Foreign().Put(ctx, "apps", doc("fenced")); err == nil {
						t.Error("the fence is not in force")
					}
					if d.Upgrade.Failures > 0 {
						return nil
					}
					return source.Foreign().Unfence(ctx, "apps")
				}}})
				w.await(ctx, "the flip", open("v2"))
				again := spy.count(fenced.Fenced) - before
				if class == "" {
					if before != 1 || again != 0 {
						t.Errorf("fenced %d times, and %d times before the flip; want once", before, again)
					}
					return
				}
				if before != 1 || again != 1 {
					t.Errorf("fenced %d times, and %d times before the flip; want once each", before, again)
				}
				if err := source.Foreign().Put(ctx, "apps", doc("late")); err == nil {
					t.Error("the application writes to the old version after the flip")
				}
				w.check(w.db["v2"].Foreign().Put(ctx, "apps2", doc("after")))
			})
		})
	}
}

// TestNoFlipWithoutFence: while a fence cannot be confirmed again, nothing flips; the
// deadline aborts, and the application has its collection back.
func TestNoFlipWithoutFence(t *testing.T) {
	t.Parallel()
	for _, class := range []record.FenceClass{record.FenceView, record.FenceValidator, record.FenceWriteBlock} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			down := faultstore.NewToggle(faultstore.On(faultstore.Always(faultstore.Down()), faultstore.Fence))
			kinds := fixed(class)
			kinds.inject = map[string]faultstore.Injector{"v1": down}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{Checks: checks{seal: func(upgradestate.Deployment) error {
					down.On()
					return nil
				}}})
				d := w.await(ctx, "the end of the abort", open("v1"))
				if d.LastSwitch != nil || w.abortReason() == "" {
					t.Errorf("aborted for %q, last switch %+v", w.abortReason(), d.LastSwitch)
				}
				w.check(w.db["v1"].Foreign().Put(ctx, "apps", doc("again")))
				docs, err := w.db["v1"].Foreign().Documents(ctx, "apps")
				w.check(err)
				if !slices.ContainsFunc(docs, func(d bson.Raw) bool { return string(d) == string(doc("again")) }) {
					t.Errorf("apps holds %v", docs)
				}
			})
		})
	}
}

// TestLateUpholding: who upholds fences by a record from before the rollback, because he slept,
// does not take an application's collections away from it again.
func TestLateUpholding(t *testing.T) {
	t.Parallel()
	for _, class := range []record.FenceClass{record.FenceView, record.FenceValidator, record.FenceWriteBlock} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			inBubble(t, fixed(class), func(ctx context.Context, w *world) {
				w.report(ctx, 0)
				w.drive(ctx, switchover.Config{})
				old := w.await(ctx, "the flip", open("v2"))
				w.check(w.offer(ctx, "v1"))
				_, err := w.admin.Apply(ctx, upgradestate.Begin{ID: "u2", TargetVersion: "v1"})
				w.check(err)
				w.await(ctx, "the rollback", open("v1"))
				w.check(w.db["v1"].Foreign().Put(ctx, "apps", doc("rolled back")))
				ns, _ := old.Namespace("v1")
				k := ns.Kinds[0]
				f := record.Fence{Class: record.FenceClass(k.Fence), Token: syncer.TokenOf(k), To: k.Fenced, Restore: k.Restore}
				if found, err := w.db["v1"].Uphold(ctx, f, []string{k.ID}); err != nil || len(found) > 0 {
					t.Errorf("found %+v, %v", found, err)
				}
				if err := w.db["v1"].Foreign().Put(ctx, "apps", doc("later")); err != nil {
					t.Errorf("the application cannot write: %v", err)
				}
			})
		})
	}
}

// offer announces that an upgrade is possible.
func (w *world) offer(ctx context.Context, to string) error {
	_, err := w.admin.Apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: to, TransformHash: "h"}})
	return err
}
