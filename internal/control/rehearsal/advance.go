package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// A rehearsal always ends with a verdict. It fails if nothing advances, if too many records fail,
// or if it takes too long.
const (
	// stallLimit is the longest time without any advance. Pauses and index builds do not count; the
	// limit of the whole rehearsal ends them.
	stallLimit = 10 * time.Minute
	// defaultLimit bounds a rehearsal without a limit from the caller.
	defaultLimit = 24 * time.Hour
	// maxParked bounds the failed records. More of them would show nothing new.
	maxParked = 5000
)

// errVerdict ends a rehearsal early with a report, not with an error.
var (
	errVerdict = errors.New("the rehearsal ended early")
	errStalled = fmt.Errorf("%w: it makes no progress", errVerdict)
	errLimit   = fmt.Errorf("%w: it did not finish within its limit", errVerdict)
	errParked  = fmt.Errorf("%w: %d records cannot be migrated; fix the lens or the data, and rehearse again", errVerdict, maxParked)
)

// advance is the greatest progress of a stage so far. Values that go up and down do not count, and
// neither do the endless changes of a busy source.
type advance struct{ copied, verified, parked, ready int64 }

// grows reports whether the stage is further than ever, or waits for something that may take long.
func (a *advance) grows(d upgradestate.Deployment, ps []syncer.Progress, parked int64) bool {
	now := advance{parked: parked}
	waits := d.Pace.Paused
	for _, p := range ps {
		// A busy source keeps the comparison going, so verified counts at most once per group.
		now.copied, now.verified = now.copied+p.Copied, now.verified+min(p.Verified, p.Total)
		waits = waits || p.Pace != "" || strings.Contains(p.WaitsFor, "is being built")
	}
	if d.Upgrade != nil {
		now.ready = int64(len(d.Upgrade.ReadyShards))
	}
	was := *a
	// Keep the maxima: a shard with a new owner may report less for a while.
	a.copied, a.verified = max(a.copied, now.copied), max(a.verified, now.verified)
	a.parked, a.ready = max(a.parked, now.parked), max(a.ready, now.ready)
	return waits || *a != was
}

// within runs a rehearsal with a limit. After the limit it returns a verdict with the last
// progress.
func (r *rehearsal) within(ctx context.Context, limit time.Duration, run func(context.Context) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
	defer cancel()
	err := run(bounded)
	// The caller's own end is an error, and only the limit is a verdict.
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(bounded), errLimit) {
		return err
	}
	stood := ""
	if w := r.last.Load(); w != nil && w.Total > 0 {
		stood = fmt.Sprintf(" (%d of %d)", w.Done, w.Total)
	}
	return fmt.Errorf("%w of %s%s: %w; resolve the reason, or give a longer --limit", errLimit, limit, stood, err)
}

// waitsFor lists the reasons for which shards wait, each once.
func waitsFor(ps []syncer.Progress) string {
	var out []string
	for _, p := range ps {
		text := p.WaitsFor
		// A difference is the better reason: the shard waits until it disappears.
		if p.Mismatched > 0 {
			text = fmt.Sprintf("%d groups that differ", p.Mismatched)
		}
		if text == "" {
			text = p.LastError
		}
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return "no shard reports a reason"
	}
	return "shards wait for " + strings.Join(out, "; ")
}
