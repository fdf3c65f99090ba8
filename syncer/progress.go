package syncer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// Progress returns the progress of owned shards, ordered by shard.
func (e *Engine) Progress() []Progress {
	ps := e.progress()
	// Not under e.mu, because LateDeletes takes the locks of other engines.
	if e.cfg.LateDeletes != nil {
		for i, p := range ps {
			ps[i].LateDeletes += e.cfg.LateDeletes(p.Shard)
		}
	}
	return ps
}

func (e *Engine) progress() []Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	total := map[int]int64{}
	for kind, ranges := range e.plan.Ranges {
		for i := range ranges {
			// Totals are estimates per kind, so each range counts an equal part.
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
		// The estimate of a finished copy is replaced by the exact number.
		if len(s.todo) == 0 {
			p.Total = s.copied
		}
		p.State = e.stateOf(s, p.WaitsFor)
		p.Pace, p.PaceCause = e.heldBack(s)
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b Progress) int { return a.Shard - b.Shard })
	return ps
}

// lagMillis returns nil after a silence of the stream: the lag is then unknown, not zero.
func (s *shard) lagMillis(now time.Time) *int64 {
	if s.heard.IsZero() || now.Sub(s.heard) > silence {
		return nil
	}
	millis := s.lag.Milliseconds()
	return &millis
}

// differing counts the groups that differed too often for a change on its way to explain it.
func (s *shard) differing() (n int64) {
	for _, entry := range s.late {
		if entry.tries >= recheckTries {
			n++
		}
	}
	return n
}

// StateCopying is the Progress.State of a shard with ranges left to copy.
const StateCopying = "copying"

// StateStopped is the Progress.State of a shard after its engine has ended with an error. The
// controller publishes it.
const StateStopped = "stopped"

// agreedStates are the states of shards that have copied and compared everything.
var agreedStates = []string{"following", "ready", "draining", "drained", "switched"}

// States are the possible values of Progress.State.
var States = slices.Concat([]string{StateCopying, "rescan", "comparing"}, agreedStates, []string{StateStopped})

// stateOf returns the Progress.State of a shard that waits for something, or for nothing ("").
func (e *Engine) stateOf(s *shard, waits string) string {
	switching := e.record.Upgrade != nil && e.record.Upgrade.State == upgradestate.Switching
	switch {
	// The order matters: each case assumes that the ones above are done.
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

// publish stores the progress if it has changed, and returns the approximate bytes written.
func (e *Engine) publish(ctx context.Context) (written int, err error) {
	lease := e.Lease()
	if lease == 0 {
		return 0, nil // without a lease it would outlive this controller
	}
	ps := e.Progress()
	e.mu.Lock()
	same := reflect.DeepEqual(ps, e.published)
	handedOver := e.handedOver
	e.mu.Unlock()
	if same || handedOver {
		return 0, nil
	}
	for i := range ps {
		written += ps[i].size()
	}
	err = e.Journal.PublishProgress(ctx, e.cfg.Owner, ps, lease)
	// The controller gets a new lease soon, and the next round publishes under it.
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

// size returns the approximate bytes of the progress in the coordination store.
func (p Progress) size() int {
	const numbers = 380 // numbers and the names of all fields
	return numbers + len(p.Owner) + len(p.WaitsFor) + len(p.Code) + len(p.Version) + len(p.LastError) + len(p.Pace) + len(p.PaceCause)
}

// meter computes a rate over the last second. The zero value is ready for use.
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
	// A shorter span would make the rate jump with each page.
	if span := now.Sub(m.at).Seconds(); span >= 0.9 {
		m.rate = float64(count-m.count) / span
		m.at, m.count = now, count
	}
	return m.rate
}
