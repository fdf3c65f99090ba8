package upgradestate_test

import (
	"errors"
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
