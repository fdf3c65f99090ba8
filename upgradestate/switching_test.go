package upgradestate_test

import (
	"errors"
	"reflect"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestEventsOfAnotherAttempt: a driver that slept through an attempt reports a step of it later. The
// present attempt has the same steps, and checks of its own that are still to come.
func TestEventsOfAnotherAttempt(t *testing.T) {
	t.Parallel()
	for step, event := range map[string]func(attempt uint64) us.Event{
		"HOLD":        func(n uint64) us.Event { return us.Held{ID: "u1", Attempt: n} },
		"DRAIN":       func(n uint64) us.Event { return us.Drained{ID: "u1", Attempt: n} },
		"SEAL_SOURCE": func(n uint64) us.Event { return us.Flip{ID: "u1", Attempt: n} },
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			d := at(t, step)
			now := d.Upgrade.Attempt
			for _, n := range []uint64{now - 1, now + 1} {
				if _, err := us.Apply(d, event(n)); !errors.Is(err, us.ErrOutdated) {
					t.Errorf("attempt %d instead of %d: %v", n, now, err)
				}
			}
			for _, n := range []uint64{0, now} { // 0 is any
				if _, err := us.Apply(d, event(n)); errors.Is(err, us.ErrOutdated) {
					t.Errorf("attempt %d: %v", n, err)
				}
			}
		})
	}
	d := at(t, "HOLD")
	d, err := us.Apply(d, us.Abort{ID: "u1", Again: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := us.Apply(d, us.Aborted{ID: "u1", Attempt: d.Upgrade.Attempt - 1}); !errors.Is(err, us.ErrOutdated) {
		t.Errorf("the end of another abort: %v", err)
	}
	// Each event that the actions ask for carries its attempt.
	for _, step := range []string{"HOLD", "SEAL_SOURCE"} {
		d := at(t, step)
		for _, a := range us.Actions(d) {
			switch a := a.(type) {
			case us.Hold:
				if a.Attempt != d.Upgrade.Attempt {
					t.Errorf("%+v", a)
				}
			case us.Flip:
				if a.Attempt != d.Upgrade.Attempt {
					t.Errorf("%+v", a)
				}
			}
		}
	}
}

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

// TestTogetherIsTheSequence: confirming all operations of a step at once leads to the record
// that confirming them one by one leads to, in each step of a switch.
func TestTogetherIsTheSequence(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, `new v1 1
namespace v1 a:uuid b:fixed-validator c:fixed-view
namespace v2 a:uuid b:fixed-validator c:fixed-view
Begin ID=u1 TargetVersion=v2 TransformHash=h`)
	combined := 0
	for range 20 {
		var acts []us.Event
		for _, a := range us.Actions(d) {
			switch a.(type) {
			case us.Execute, us.Unfence:
				acts = append(acts, eventOf(a))
			}
		}
		if len(acts) < 2 {
			if step := us.Actions(d); len(step) == 0 {
				break
			}
			drive(t, &d)
			continue
		}
		together, err := us.Apply(d, us.Together{Events: acts})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range acts {
			if d, err = us.Apply(d, e); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(together, d) {
			t.Fatalf("together %s, one by one %s", show(together), show(d))
		}
		combined++
	}
	if d.CurrentVersion != "v2" || combined < 3 {
		t.Fatalf("%d steps were combined: %s", combined, show(d))
	}
}

// TestTogetherIsAllOrNothing: one transition that is refused leaves the record alone.
func TestTogetherIsAllOrNothing(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, `new v1 1
namespace v1 a:uuid
namespace v2 a:uuid`)
	got, err := us.Apply(d, us.Together{Events: []us.Event{
		us.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h"},
		us.StartSwitch{ID: "u1"}, // no shard is ready
	}})
	var refused *us.RefusedError
	if err == nil || !errors.As(err, &refused) && !errors.Is(err, us.ErrOutdated) {
		t.Fatalf("error %v", err)
	}
	if !reflect.DeepEqual(got, d) {
		t.Fatalf("half of it was made: %s", show(got))
	}
}

// TestBackIsTold: a switch to where the one before it came from is a rollback; the one
// after that goes forward again.
func TestBackIsTold(t *testing.T) {
	t.Parallel()
	var d us.Deployment
	play(t, &d, `new v1 1
namespace v1 a:uuid
namespace v2 a:uuid`)
	for i, want := range []struct {
		to   string
		back bool
	}{{"v2", false}, {"v1", true}, {"v2", false}, {"v1", true}} {
		d, _ = us.Apply(d, us.Begin{ID: string(rune('a' + i)), TargetVersion: want.to, TransformHash: "h"})
		for range 20 {
			if d.Upgrade == nil {
				break
			}
			drive(t, &d)
		}
		if d.CurrentVersion != want.to || d.LastSwitch == nil || d.LastSwitch.Back != want.back {
			t.Fatalf("switch %d to %s: %+v", i, want.to, d.LastSwitch)
		}
	}
}
