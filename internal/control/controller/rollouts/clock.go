package rollouts

import (
	"crypto/rand"
	"time"

	"dbcontroller.dev/internal/engine/rollout"
)

// away is the longest time between two looks of one period of observation. A gate's hold time begins
// anew after a longer one.
const away = 15 * time.Second

// clock sums the time for which a driver observes a rollout. A time in which the process did not run,
// or a step of the wall clock, must neither pass a gate nor fail a wave.
type clock struct {
	driver string        // names the period of observation
	sum    time.Duration // of all periods
	mono   time.Duration // the two clocks at the latest tick
	wall   time.Time
}

// started is the zero of the monotonic clock.
var started = time.Now()

func newClock() *clock {
	now := time.Now()
	return &clock{driver: rand.Text(), mono: now.Sub(started), wall: now.Round(0)}
}

// tick adds the time since the latest tick, which lasts at most longest while the process runs.
func (c *clock) tick(now time.Time, longest time.Duration) {
	c.tickAt(now.Sub(started), now.Round(0), longest)
}

func (c *clock) tickAt(mono time.Duration, wall time.Time, longest time.Duration) {
	passed, byWall := mono-c.mono, wall.Sub(c.wall)
	c.mono, c.wall = mono, wall
	c.sum += min(passed, longest)
	// The monotonic clock of Linux stands still while the machine is suspended, and the wall clock is
	// corrected afterwards.
	if passed > longest || byWall-passed > away {
		c.driver = rand.Text()
	}
}

// longestLook returns how long a look at a wave, with its checks, takes at most. If etcd hangs it may
// take longer, but then nothing was seen.
func (r *Runner) longestLook(ro rollout.Rollout) time.Duration {
	longest := lookMax
	for _, name := range ro.Policy.Checks {
		longest = max(longest, r.Checks[name].Timeout)
	}
	return longest + away
}
