package syncer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/upgradestate"
)

// Progress returns what is known of the owned shards, ordered by shard.
func (e *Engine) Progress() []Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	total := map[int]int64{}
	for kind, ranges := range e.plan.Ranges {
		for i := range ranges {
			total[e.plan.shardOf(kind, i, e.cfg.Ring)] += e.plan.Totals[kind] / int64(len(ranges))
		}
	}
	ps := make([]Progress, 0, len(e.shards))
	for n, s := range e.shards {
		waits := e.waitsFor(n, s)
		p := Progress{
			Shard: n, Owner: e.cfg.Owner, Copied: s.copied, Total: max(total[n], s.copied),
			Rate: s.rate.observe(now, s.copied), LagMillis: s.lagMillis(now), Applied: s.appliedCount,
			Parked: e.parkedIn(n), Retries: s.retries, Verified: s.comparedCount, Mismatched: s.differing(),
			LateDeletes: s.applied.lateDeletes, WaitsFor: waits.Text, Code: waits.Code, Version: waits.Place.Version, LastError: e.lastErr,
			Epoch: e.cfg.Epoch, Generation: e.generation,
		}
		if len(s.todo) == 0 {
			p.Total = s.copied
		}
		if e.cfg.LateDeletes != nil {
			p.LateDeletes += e.cfg.LateDeletes(n)
		}
		p.State = e.stateOf(s, p.WaitsFor)
		p.Pace, p.PaceCause = e.heldBack(s)
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b Progress) int { return a.Shard - b.Shard })
	return ps
}

func (s *shard) lagMillis(now time.Time) *int64 {
	if s.heard.IsZero() || now.Sub(s.heard) > silence {
		return nil
	}
	millis := s.lag.Milliseconds()
	return &millis
}

// differing counts the groups that have differed too often to be under way.
func (s *shard) differing() (n int64) {
	for _, entry := range s.late {
		if entry.tries >= recheckTries {
			n++
		}
	}
	return n
}

// StateCopying is the Progress.State of a shard that has ranges to copy.
const StateCopying = "copying"

// StateStopped is the Progress.State of a shard whose engine has ended with an error. Its
// controller publishes it.
const StateStopped = "stopped"

// agreedStates are the states of a shard that has copied and compared everything.
var agreedStates = []string{"following", "ready", "draining", "drained", "switched"}

// States are all that Progress.State may be.
var States = slices.Concat([]string{StateCopying, "rescan", "comparing"}, agreedStates, []string{StateStopped})

func (e *Engine) stateOf(s *shard, waits string) string {
	switching := e.record.Upgrade != nil && e.record.Upgrade.State == upgradestate.Switching
	switch {
	case e.over():
		return "switched"
	case len(s.todo) > 0:
		return StateCopying
	case s.rescan:
		return "rescan"
	case !s.verified:
		return "comparing"
	case switching && waits == "":
		return "drained"
	case switching:
		return "draining"
	case waits == "":
		return "ready"
	default:
		return "following"
	}
}

// publish stores the progress when it has changed.
func (e *Engine) publish(ctx context.Context) (written int, err error) {
	lease := e.Lease()
	if lease == 0 {
		return 0, nil // without a lease it would outlive this controller
	}
	ps := e.Progress()
	e.mu.Lock()
	same := reflect.DeepEqual(ps, e.published)
	handedOver := e.next != nil
	e.mu.Unlock()
	if same || handedOver {
		return 0, nil
	}
	for i := range ps {
		written += ps[i].size()
	}
	err = e.Journal.PublishProgress(ctx, e.cfg.Owner, ps, lease)
	if errors.Is(err, coord.ErrLeaseLost) {
		return written, nil
	}
	if err != nil {
		return written, fmt.Errorf("publish progress: %w", err)
	}
	e.mu.Lock()
	e.published = ps
	e.mu.Unlock()
	return written, nil
}

// size is about what a shard's progress takes in the coordination store.
func (p Progress) size() int {
	const numbers = 380 // with the names of all fields
	return numbers + len(p.Owner) + len(p.WaitsFor) + len(p.Code) + len(p.Version) + len(p.LastError) + len(p.Pace) + len(p.PaceCause)
}

// meter is a rate over the recent seconds.
type meter struct {
	at    time.Time
	count int64
	rate  float64
}

func (m *meter) observe(now time.Time, count int64) float64 {
	if m.at.IsZero() {
		m.at, m.count = now, count
		return 0
	}
	if span := now.Sub(m.at).Seconds(); span >= 0.9 {
		m.rate = float64(count-m.count) / span
		m.at, m.count = now, count
	}
	return m.rate
}
