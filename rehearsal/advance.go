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

// A rehearsal ends with a verdict, whatever the records are: it fails when nothing advances, when
// so many records fail that the rest tells nothing new, and when it takes too long.
const (
	// stallLimit is how long nothing may advance. Pauses and builds of indexes do not count: the
	// limit of the whole rehearsal ends them.
	stallLimit = 10 * time.Minute
	// defaultLimit bounds a rehearsal for which the caller names no limit.
	defaultLimit = 24 * time.Hour
	// maxParked is how many records may fail.
	maxParked = 5000
)

// errVerdict ends a rehearsal with a report that says why it is not fine.
var (
	errVerdict = errors.New("the rehearsal ended early")
	errStalled = fmt.Errorf("%w: nothing advances", errVerdict)
	errLimit   = fmt.Errorf("%w: it was not done within its limit", errVerdict)
	errParked  = fmt.Errorf("%w: %d records cannot be migrated; correct the lens or the data, and rehearse again", errVerdict, maxParked)
)

// advance is how far a stage was at most. What only comes and goes is no advance, nor are the
// changes of a busy source, which never end.
type advance struct{ copied, verified, parked, ready int64 }

// grows reports whether the stage is farther than ever, or waits for what takes its time.
func (a *advance) grows(d upgradestate.Deployment, ps []syncer.Progress, parked int64) bool {
	now := advance{parked: parked}
	waits := d.Pace.Paused
	for _, p := range ps {
		now.copied, now.verified = now.copied+p.Copied, now.verified+min(p.Verified, p.Total)
		waits = waits || p.Pace != "" || strings.Contains(p.WaitsFor, "is being built")
	}
	if d.Upgrade != nil {
		now.ready = int64(len(d.Upgrade.ReadyShards))
	}
	was := *a
	a.copied, a.verified = max(a.copied, now.copied), max(a.verified, now.verified)
	a.parked, a.ready = max(a.parked, now.parked), max(a.ready, now.ready)
	return waits || *a != was
}

// within runs a rehearsal, and ends it with a verdict that names what it stood at when it takes
// longer than limit.
func (r *rehearsal) within(ctx context.Context, limit time.Duration, run func(context.Context) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
	defer cancel()
	err := run(bounded)
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(bounded), errLimit) {
		return err
	}
	stood := ""
	if w := r.last.Load(); w != nil && w.Total > 0 {
		stood = fmt.Sprintf(" (%d of %d)", w.Done, w.Total)
	}
	return fmt.Errorf("%w of %s%s: %w; correct what it waits for, or give a longer --limit", errLimit, limit, stood, err)
}

// waitsFor names what shards wait for, each thing once.
func waitsFor(ps []syncer.Progress) string {
	var out []string
	for _, p := range ps {
		text := p.WaitsFor
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
		return "no shard reports what it waits for"
	}
	return "shards wait for " + strings.Join(out, "; ")
}
