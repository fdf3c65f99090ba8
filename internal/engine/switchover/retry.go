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

// An attempt that was given up releases clients' writes, and the driver tries again as often as the
// policy allows. Before the next attempt every shard reports ready again, no known hindrance may
// remain in either database, and clients get some time to write. That time only serves the clients:
// a driver that takes over starts counting it again.

// retryWaitMost bounds the time between two attempts.
const retryWaitMost = time.Minute

// failure is an attempt that was given up, as this driver saw it.
type failure struct {
	id    string
	count int
	since time.Time
}

// observeFailure records when this driver first saw the latest failure.
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

// retries is the number of attempts that may follow the first one.
func (r *Driver) retries(u *upgradestate.Upgrade) int {
	return max(0, u.Policy.Or(r.cfg.Policy).Retries) // a negative number means none
}

// giveUp ends the attempt. It ends the whole upgrade only if the policy allows no further attempt.
func (r *Driver) giveUp(d upgradestate.Deployment, why string) upgradestate.Abort {
	u := d.Upgrade
	return upgradestate.Abort{ID: u.ID, Attempt: u.Attempt, Reason: why, Again: u.Failures < r.retries(u)}
}

// recovering explains to operators how long clients still write before the next attempt; "" means
// the time is over.
func (r *Driver) recovering(d upgradestate.Deployment) string {
	u := d.Upgrade
	if u.Failures == 0 {
		return ""
	}
	wait := r.cfg.RetryWait
	// Stop doubling at the maximum: the duration would overflow after many failures.
	for n := 1; n < u.Failures && wait < retryWaitMost; n++ {
		wait *= 2
	}
	wait = min(wait, retryWaitMost)
	if time.Since(r.failed.since) >= wait {
		return ""
	}
	return fmt.Sprintf("attempt %d of %d, %s after the last one failed: %s", u.Failures+1, r.retries(u)+1, wait, u.LastFailure)
}

// wrapIn adds the version to an error; nil stays nil.
func wrapIn(version string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", version, err)
}

// hindrances asks both databases, in parallel, for anything that would delay a switch, such as an
// index build, or lose a record during it.
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
			// Keep findings even next to an error: operators see as much as is known.
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
