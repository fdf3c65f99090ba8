package upgradestate_test

import (
	"errors"
	"reflect"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

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
