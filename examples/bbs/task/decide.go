package task

import "time"

// Config configures the controller. Fields that are 0 have the default.
type Config struct {
	// Every is the interval between two checks of all tasks. Changes are followed in between.
	Every time.Duration
	// ExpirePending is the time after which a task that no cell starts fails. Default: 30 minutes.
	ExpirePending time.Duration
	// ExpireCompleted is the time after the completion at which a task is deleted, even if its
	// callback never succeeded. Default: 1 hour.
	ExpireCompleted time.Duration
	// CallbackTimeout bounds one post. Default: 10 seconds.
	CallbackTimeout time.Duration
	// ResolveTimeout is the time after which a RESOLVING task becomes COMPLETED again. It is longer
	// than CallbackTimeout: otherwise a task would be posted twice at a time. Default: 30 seconds.
	ResolveTimeout time.Duration
	// FirstPause is the pause after a failed post. It doubles with each further one, up to 2 minutes.
	// Default: 1 second.
	FirstPause time.Duration
}

// longestPause is the longest pause between two posts of a task.
const longestPause = 2 * time.Minute

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.Every, 10 * time.Second}, {&c.ExpirePending, 30 * time.Minute}, {&c.ExpireCompleted, time.Hour},
		{&c.CallbackTimeout, 10 * time.Second}, {&c.ResolveTimeout, 30 * time.Second}, {&c.FirstPause, time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	// A task must not be released while its own post can still succeed.
	c.ResolveTimeout = max(c.ResolveTimeout, 2*c.CallbackTimeout)
	return c
}

// Op is what the controller does with a task next.
type Op string

// The operations.
const (
	Nothing Op = ""
	Lose    Op = "lose"    // fails it, because its cell is lost
	GiveUp  Op = "give up" // fails it, because no cell has started it
	Release Op = "release" // makes it COMPLETED again
	Post    Op = "post"    // posts it to its callback
	Expire  Op = "expire"  // deletes it
)

// Decide returns the next operation for a task, and when to look again if there is none; the zero
// time means when it changes. lost are the cells that stopped reporting.
func Decide(t Task, now time.Time, lost map[string]bool, cfg Config) (Op, time.Time) {
	switch t.State {
	case Pending:
		return due(GiveUp, t.Created.Add(cfg.ExpirePending), now)
	case Running:
		if lost[t.Cell] {
			return Lose, time.Time{}
		}
	case Completed:
		expiry := t.Done.Add(cfg.ExpireCompleted)
		if !now.Before(expiry) {
			return Expire, time.Time{}
		}
		if t.URL == "" {
			return Nothing, expiry
		}
		next := t.Updated.Add(pause(t.Attempts, cfg.FirstPause))
		if expiry.Before(next) {
			return Nothing, expiry
		}
		return due(Post, next, now)
	// An expired task may just be handled, so it expires only after its release.
	case Resolving:
		return due(Release, t.Updated.Add(cfg.ResolveTimeout), now)
	}
	return Nothing, time.Time{}
}

func due(op Op, at, now time.Time) (Op, time.Time) {
	if now.Before(at) {
		return Nothing, at
	}
	return op, time.Time{}
}

// pause returns the wait after that many posts. There is none before the first one.
func pause(attempts int32, first time.Duration) time.Duration {
	if attempts <= 0 {
		return 0
	}
	// More doublings than these exceed longestPause from a nanosecond on, and would overflow.
	return min(first<<min(attempts-1, 20), longestPause)
}
