package upgradestate_test

import (
	"fmt"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

func TestBreaches(t *testing.T) {
	t.Parallel()
	d := us.New("services/s/deployments/d", "v1", 2)
	apply := func(e us.Event) us.Deployment {
		t.Helper()
		next, err := us.Apply(d, e)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	d = apply(us.AnnounceNamespace{Namespace: us.Namespace{Version: "v1", Location: "here", Kinds: []us.Kind{{Kind: "users", Fixed: true, Fence: "view", Physical: "users"}}}})
	found := us.Breach{Version: "v1", Kind: "users", What: "a collection was made", Aside: "aside.1", Count: 3}
	d = apply(us.Breached{Breach: found})
	d = apply(us.Breached{Breach: found})
	if open := us.OpenBreaches(d); len(open) != 1 || open[0].Count != 3 {
		t.Fatalf("open: %+v", open)
	}
	if _, err := us.Apply(d, us.Breached{Breach: us.Breach{Version: "v9", Kind: "users", What: "x"}}); err == nil {
		t.Error("a breach of an unknown version is noted")
	}
	d = apply(us.AcceptBreaches{})
	d = apply(us.Breached{Breach: found}) // found again by the next leader
	if open := us.OpenBreaches(d); len(open) != 0 {
		t.Errorf("open after it was accepted: %+v", open)
	}
	// What leaves no collection counts again after it was accepted.
	gone := us.Breach{Version: "v1", Kind: "users", What: "the view was dropped"}
	d = apply(us.Breached{Breach: gone})
	d = apply(us.AcceptBreaches{})
	d = apply(us.Breached{Breach: gone})
	if open := us.OpenBreaches(d); len(open) != 1 {
		t.Errorf("open: %+v", open)
	}
	// The check before the repair counts fewer records than the one after it.
	gone.Count = 4
	d = apply(us.Breached{Breach: gone})
	if open := us.OpenBreaches(d); len(open) != 1 || open[0].Count != 4 {
		t.Errorf("open with a count: %+v", open)
	}
	for i := range 200 {
		found.Aside = fmt.Sprint("aside.", i)
		d = apply(us.Breached{Breach: found})
	}
	if open := us.OpenBreaches(d); len(d.Breaches) > 50 || len(open) != len(d.Breaches) {
		t.Errorf("%d noted, %d open", len(d.Breaches), len(open))
	}
	if err := us.Validate(d); err != nil {
		t.Error(err)
	}
}

// TestBreachEndsAnAttempt: a fence of the current version that was missing in a switch ends the attempt.
// The next one takes the writes that passed it along, so nobody has to accept the breach.
func TestBreachEndsAnAttempt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		step, version, aside string
		before               bool // the same was found earlier, and nobody has accepted it
		ends                 bool
		open                 int
	}{
		"lifted":                     {step: "SEAL_SOURCE", version: "v1", ends: true},
		"lifted in the drain":        {step: "DRAIN", version: "v1", ends: true},
		"of the target":              {step: "DRAIN", version: "v2", open: 1},
		"known, of an earlier fence": {step: "DRAIN", version: "v1", before: true, ends: true, open: 1},
		"set aside":                  {step: "DRAIN", version: "v1", aside: "aside.1", ends: true, open: 1},
		"set aside, and known":       {step: "DRAIN", version: "v1", aside: "aside.1", before: true, open: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := at(t, tc.step)
			found := us.Breached{Breach: us.Breach{Version: tc.version, Kind: "users", What: "the validator was removed", Aside: tc.aside}}
			if tc.before {
				d.Breaches = append(d.Breaches, found.Breach)
			}
			next, err := us.Apply(d, found)
			if err != nil {
				t.Fatal(err)
			}
			if ended := next.Upgrade.Step == us.StepAbort; ended != tc.ends || ended && (!next.Upgrade.Again || next.Upgrade.Attempt == d.Upgrade.Attempt) {
				t.Errorf("the attempt is %+v", next.Upgrade)
			}
			if open := us.OpenBreaches(next); len(open) != tc.open {
				t.Errorf("to be accepted: %+v", open)
			}
			// The check of fences repeats, and the driver may be at the flip.
			again, err := us.Apply(next, found)
			if err != nil || again.Upgrade.Attempt != next.Upgrade.Attempt {
				t.Errorf("found again: %+v, %v", again.Upgrade, err)
			}
			if _, err := us.Apply(next, us.Flip{ID: "u1"}); tc.ends && err == nil {
				t.Error("it flips")
			}
		})
	}
}
