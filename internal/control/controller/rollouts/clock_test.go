package rollouts

import (
	"testing"
	"time"

	"dbcontroller.dev/internal/engine/rollout"
)

// TestClock: which passing of time counts, and after which one a gate's hold time begins anew.
func TestClock(t *testing.T) {
	t.Parallel()
	wall := time.Unix(1e9, 0)
	for name, tc := range map[string]struct {
		mono, wall, counts time.Duration
		anew               bool
	}{
		"a look":                     {2 * time.Second, 2 * time.Second, 2 * time.Second, false},
		"the wall clock goes back":   {2 * time.Second, -time.Hour, 2 * time.Second, false},
		"the wall clock goes on":     {2 * time.Second, time.Hour, 2 * time.Second, true},
		"a stopped process":          {time.Hour, time.Hour, away, true},
		"a suspended machine":        {2 * time.Second, time.Hour, 2 * time.Second, true},
		"a correction of the clock":  {2 * time.Second, 4 * time.Second, 2 * time.Second, false},
		"as long as a look may take": {away, away, away, false},
	} {
		c := &clock{driver: "d", sum: time.Minute, mono: time.Hour, wall: wall}
		c.tickAt(time.Hour+tc.mono, wall.Add(tc.wall), away)
		if got := c.sum - time.Minute; got != tc.counts || (c.driver != "d") != tc.anew {
			t.Errorf("%s: %s counts, and it is anew: %v", name, got, c.driver != "d")
		}
		// The next look follows from there.
		driver := c.driver
		if c.tickAt(time.Hour+tc.mono+time.Second, wall.Add(tc.wall+time.Second), away); c.sum != time.Minute+tc.counts+time.Second || c.driver != driver {
			t.Errorf("%s: the next look counts %s", name, c.sum-time.Minute-tc.counts)
		}
	}
}

// TestLongChecksCount: the time of a check counts for the limits of its gate.
func TestLongChecksCount(t *testing.T) {
	t.Parallel()
	r := New(Config{Checks: map[string]Check{"slow": {Timeout: time.Minute}, "quick": {Timeout: time.Second}}})
	for want, checks := range map[time.Duration][]string{time.Minute + away: {"quick", "slow"}, lookMax + away: {"quick", "missing"}} {
		if got := r.longestLook(rollout.Rollout{Policy: rollout.Policy{Checks: checks}}); got != want {
			t.Errorf("with checks %v: %s, want %s", checks, got, want)
		}
	}
}
