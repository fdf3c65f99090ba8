package syncer

import (
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/shards"
)

// What happens to every shard, and errors that come again as long as a database is away, must
// not fill the log: there may be 1,024 shards, and a database may be away for hours.

// milestones logs how many of the owned shards are copied, and how many compared, each time that
// it is a tenth more of them, and when it is all. While shards come one after the other, each is
// all of them so far, and nothing is said until sayAdopted says which came. e.mu is held.
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
	e.tenths[what] = tenths // less, where shards were gained that are not there yet
}

// complain logs an error of what is tried again, unless it is known.
func (e *Engine) complain(what string, err error) {
	e.mu.Lock()
	c := e.complaints[what]
	if c == nil {
		c = &reconcile.Complaint{}
		e.complaints[what] = c
	}
	e.mu.Unlock()
	if c.News(err) {
		e.Log.Warn("will be tried again", zap.String("what", what), zap.Error(err))
	}
}

// sayAdopted logs which shards were adopted since it was called last. They come some at a
// time: one that was given up by another controller after the other.
func (e *Engine) sayAdopted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.adopted) == 0 {
		return
	}
	ranges, copied := 0, int64(0)
	for _, n := range e.adopted {
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

// sayAdoptedAfter is how long shards that come one after the other make one line.
const sayAdoptedAfter = 2 * time.Second
