package switchover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// What becomes of an attempt at the switch that was given up: writes flow again, and it is
// tried once more, as often as the policy allows. Every shard reports anew before that, in both
// databases nothing must be known that holds an operation up, and clients have some time to
// write. That time is for their sake only: a driver that takes over begins
// to count it anew.

// retryWaitMost bounds the time between two attempts.
const retryWaitMost = time.Minute

// failure is an attempt that was given up, as this driver saw it.
type failure struct {
	id    string
	count int
	since time.Time
}

func (r *Driver) observeFailure(d upgradestate.Deployment, now time.Time) {
	var seen failure
	if u := d.Upgrade; u != nil && u.Step == upgradestate.StepNone && u.Failures > 0 {
		seen = failure{id: u.ID, count: u.Failures}
	}
	if seen.id != r.failed.id || seen.count != r.failed.count {
		seen.since = now
		r.failed = seen
	}
}

// retries is how many attempts may follow the first one.
func (r *Driver) retries(u *upgradestate.Upgrade) int {
	if u.Policy.Retries != 0 {
		return max(0, u.Policy.Retries)
	}
	return max(0, r.cfg.Retries)
}

// giveUp ends the attempt, not the upgrade, as long as its policy allows another one.
func (r *Driver) giveUp(d upgradestate.Deployment, why string) upgradestate.Abort {
	u := d.Upgrade
	return upgradestate.Abort{ID: u.ID, Attempt: u.Attempt, Reason: why, Again: u.Failures < r.retries(u)}
}

// recovering returns, for people, how long clients still write before the next attempt.
func (r *Driver) recovering(d upgradestate.Deployment) string {
	u := d.Upgrade
	if u.Failures == 0 {
		return ""
	}
	wait := r.cfg.RetryWait
	for n := 1; n < u.Failures && wait < retryWaitMost; n++ {
		wait *= 2
	}
	wait = min(wait, retryWaitMost)
	if time.Since(r.failed.since) >= wait {
		return ""
	}
	return fmt.Sprintf("attempt %d of %d, %s after the last one was given up: %s", u.Failures+1, r.retries(u)+1, wait, u.LastFailure)
}

// wrapIn says of an error in which version it is; nil stays nil.
func wrapIn(version string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", version, err)
}

// hindrances asks both databases, neither after the other, for what would hold up the operations
// of a switch.
func (r *Driver) hindrances(ctx context.Context, d upgradestate.Deployment) ([]upgradestate.Blocker, error) {
	versions := [...]string{d.CurrentVersion, d.Upgrade.TargetVersion}
	var found [len(versions)][]upgradestate.Blocker
	var g errgroup.Group
	for i, version := range versions {
		g.Go(func() error {
			f, err := r.fencer(version)
			if err != nil {
				return err
			}
			ns, _ := d.Namespace(version)
			var toks []record.Token
			for _, k := range ns.Kinds {
				toks = append(toks, record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed})
			}
			all, err := f.Hindrances(ctx, toks)
			for _, h := range all {
				found[i] = append(found[i], upgradestate.Blocker{
					Code: upgradestate.BlockHindrance, Place: upgradestate.BlockPlace{Version: version, Kind: h.Kind}, Text: h.What,
				})
			}
			return upgradestate.Blocked(upgradestate.BlockUnanswered, upgradestate.BlockPlace{Version: version}, wrapIn(version, err))
		})
	}
	err := g.Wait()
	return slices.Concat(found[:]...), err
}
