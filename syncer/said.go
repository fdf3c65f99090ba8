package syncer

import (
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/shards"
)

// This file limits the log. There may be 1,024 shards, and a database may be away for hours. So
// events of every shard and repeated errors must not be logged one by one.

// milestones logs the numbers of copied and of compared shards at each further tenth of the owned
// ones. It logs nothing while adopted shards are not logged yet: while they arrive one by one, each
// would complete a hundred percent. e.mu is held.
func (e *Engine) milestones() {
	if len(e.adopted) > 0 {
		return
	}
	e.milestone("shards are copied", func(s *shard) (bool, int64) { return len(s.todo) == 0, s.copied }, "records")
	e.milestone("shards are compared", func(s *shard) (bool, int64) { return s.verified, s.comparedCount }, "groups")
}

func (e *Engine) milestone(what string, there func(*shard) (is bool, count int64), counted string) {
	n, total := 0, int64(0)
	for _, s := range e.shards {
		if is, count := there(s); is {
			n++
			total += count
		}
	}
	tenths := 10 * n / max(1, len(e.shards))
	if tenths > e.tenths[what] {
		e.Log.Info(what, zap.Int("shards", n), zap.Int("of", len(e.shards)), zap.Int64(counted, total))
	}
	e.tenths[what] = tenths // falls when shards are gained
}

// complain logs an error of work that will be retried, unless it logged the same one before.
func (e *Engine) complain(what string, err error) {
	e.mu.Lock()
	c := e.complaints[what]
	if c == nil {
		c = &reconcile.Complaint{}
		e.complaints[what] = c
	}
	e.mu.Unlock()
	// The log call is outside of e.mu, which every worker needs.
	if c.News(err) {
		e.Log.Warn("will be retried", zap.String("what", what), zap.Error(err))
	}
}

// countedEvery is the time between two lines about work that others cause all the time.
const countedEvery = time.Minute

// tally counts events since the last line about them.
type tally struct {
	count int
	said  time.Time
}

// counted adds n events and returns the number for a log line, or 0 if a line about them was logged
// within countedEvery. The next line then counts them too.
func (e *Engine) counted(what string, n int) int {
	if n == 0 {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tallies[what]
	t.count += n
	if !t.said.IsZero() && time.Since(t.said) < countedEvery {
		e.tallies[what] = t
		return 0
	}
	e.tallies[what] = tally{said: time.Now()}
	return t.count
}

// sayAdopted logs the shards adopted since its last call. They arrive a few at a time while other
// controllers release them.
func (e *Engine) sayAdopted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.adopted) == 0 {
		return
	}
	ranges, copied := 0, int64(0)
	for _, n := range e.adopted {
		// An adopted shard may be lost again by now.
		if s := e.shards[n]; s != nil {
			ranges += len(s.todo)
			copied += s.copied
		}
	}
	e.Log.Info("shards are adopted", zap.String("shards", shards.Ranges(e.adopted)), zap.Int("count", len(e.adopted)),
		zap.String("direction", string(e.key)), zap.Int("ranges", ranges), zap.Int64("copied", copied))
	e.adopted = nil
	e.milestones()
}

func (e *Engine) hasAdopted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.adopted) > 0
}

// sayAdoptedAfter is the time during which adopted shards share one log line.
const sayAdoptedAfter = 2 * time.Second
