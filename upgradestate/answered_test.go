package upgradestate_test

import (
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestOneAnswerToAFinding: several controllers find one restore. Each of them has read the record after
// the first one's answer, because the beats still show the restore. Only the first one has an effect.
func TestOneAnswerToAFinding(t *testing.T) {
	t.Parallel()
	t.Run("current version", func(t *testing.T) {
		t.Parallel()
		var d us.Deployment
		play(t, &d, "new v1 2\nnamespace v1 lrps:uuid")
		found := func(finding string) {
			step(t, &d, us.FoundRestored{Restored: us.Restored{Version: "v1", What: "w"}, Epoch: d.Epoch, Finding: finding})
		}
		found("a")
		first := us.Clone(d)
		found("a")
		if d.Epoch != first.Epoch || len(d.History) != len(first.History) {
			t.Errorf("the same finding again: epoch %d after %d, %d entries after %d", d.Epoch, first.Epoch, len(d.History), len(first.History))
		}
		for _, other := range []string{"b", "", ""} { // another restore, and findings without a name
			before := d.Epoch
			if found(other); d.Epoch == before {
				t.Errorf("no epoch for finding %q", other)
			}
		}
	})
	t.Run("other version", func(t *testing.T) {
		t.Parallel()
		var d us.Deployment
		play(t, &d, "new v1 2\nnamespace v1 lrps:uuid users:fixed-view\nnamespace v2 lrps:uuid users:fixed-view\nBegin ID=u1 TargetVersion=v2 TransformHash=h")
		rebuild := func(finding string, places ...us.Place) (fresh bool) {
			ns, _ := d.Namespace("v2")
			step(t, &d, us.Rebuild{Version: "v2", Seen: ns.Images, Reason: "restored", Finding: finding, Found: places})
			now, _ := d.Namespace("v2")
			return now.Images != ns.Images
		}
		if !rebuild("a") || rebuild("a") {
			t.Error("the same finding was not answered once")
		}
		ns, _ := d.Namespace("v2")
		k := ns.Kinds[0]
		if us.ApplyAllowed(d) || k.Pending == nil {
			t.Fatal("controllers may write before the renames")
		}
		// The database was restored once more from the same backup: the collection is elsewhere.
		if !rebuild("a", us.Place{Kind: k.Kind, Name: k.Kind + ".n90", ID: k.ID}) || rebuild("a") || !rebuild("b") || !rebuild("") {
			t.Error("another restore was not answered")
		}
		if !rebuild("c") {
			t.Error("no answer")
		}
		// After each rename a restore that looks the same counts, because it undoes the rename.
		for i := range ns.Kinds {
			now, _ := d.Namespace("v2")
			k := now.Kinds[i]
			step(t, &d, us.Confirmed{Version: "v2", Kind: k.Kind, To: k.Pending.To, From: k.Pending.From})
			if !rebuild("c") {
				t.Errorf("a restore after the rename of %s was not answered", k.Kind)
			}
		}
	})
}
