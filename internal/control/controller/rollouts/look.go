package rollouts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/upgradestate"
)

// Limits of looking at a wave.
const (
	atOnce  = 8                // deployments
	lookMax = 10 * time.Second // for one deployment
)

// seenRecord returns the part of a record that rollouts decide on.
func seenRecord(d upgradestate.Deployment) rollout.Deployment {
	out := rollout.Deployment{CurrentVersion: d.CurrentVersion, LastUpgradeID: d.LastUpgradeID}
	if d.Upgrade != nil {
		out.UpgradeID = d.Upgrade.ID
	}
	if d.LastSwitch != nil {
		out.LastSwitchID = d.LastSwitch.ID
	}
	return out
}

// look reads the deployments that the next transition of a rollout decides on.
func (r *Runner) look(ctx context.Context, ro rollout.Rollout) map[string]rollout.Deployment {
	waves := ro.Waves[ro.Wave : ro.Wave+1]
	switch {
	case ro.State == rollout.RollingBack:
		waves = ro.Waves[ro.BackTo:]
	case ro.Step == rollout.StepPause:
		return nil
	}
	var mu sync.Mutex
	all := map[string]rollout.Deployment{}
	g := errgroup.Group{}
	g.SetLimit(atOnce)
	for _, w := range waves {
		for _, item := range w.Items {
			if ro.State == rollout.RollingBack && item.Order == "" {
				continue
			}
			g.Go(func() error {
				d := r.lookAt(ctx, ro, item.Name)
				mu.Lock()
				defer mu.Unlock()
				all[item.Name] = d
				return nil
			})
		}
	}
	_ = g.Wait() // no look fails; an unread deployment is one
	return all
}

func (r *Runner) lookAt(ctx context.Context, ro rollout.Rollout, name string) rollout.Deployment {
	ctx, cancel := context.WithTimeout(ctx, lookMax)
	defer cancel()
	s, err := r.Store.Other(name)
	if err != nil {
		return rollout.Deployment{Unread: err.Error()}
	}
	d, err := s.Get(ctx)
	if err != nil {
		return rollout.Deployment{Unread: unread(err)}
	}
	out := seenRecord(d)
	out.Waits = waitsFor(ctx, s, d)
	// Only a gate needs the rest, which takes several reads.
	if ro.State != rollout.Running || ro.Step != rollout.StepGate {
		return out
	}
	state, err := s.State(ctx, d)
	if err != nil {
		return rollout.Deployment{Unread: unread(err)}
	}
	out.Against = against(state, ro.Policy)
	return out
}

// waitsFor returns what the running upgrade of a deployment waits for before its switch. "" means
// that nothing is known.
func waitsFor(ctx context.Context, s *deployment.Store, d upgradestate.Deployment) string {
	if d.Upgrade == nil {
		return ""
	}
	if why := upgradestate.SwitchBlocker(d); why != "" && d.Upgrade.State == upgradestate.InitialSyncing {
		return why
	}
	// It is only for people, so an error of this read changes nothing.
	o, err := s.Readiness(ctx)
	if err != nil || o == nil || o.ID != d.Upgrade.ID {
		return ""
	}
	for _, b := range o.Blockers {
		// The number of missing shards changes often, and each change would be a write of the rollout.
		if b.Code != upgradestate.BlockShards {
			return b.Text
		}
	}
	return ""
}

func unread(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "etcd does not answer"
	}
	return err.Error()
}

// against returns what is known against a deployment after its switch. "" means nothing.
func against(s deployment.State, p rollout.Policy) string {
	var why []string
	d := s.Record
	if n := len(upgradestate.OpenBreaches(d)); n > 0 {
		why = append(why, fmt.Sprintf("%d breaches of fences are not accepted", n))
	}
	for _, line := range []string{upgradestate.RestoredLine(d), upgradestate.DifferentLine(d)} {
		if line != "" {
			why = append(why, line)
		}
	}
	if ns, _ := d.Namespace(d.CurrentVersion); pending(ns) {
		why = append(why, "the switch is not complete: its collections do not all have their own names yet")
	}
	if s.Back.Blocking > 0 {
		why = append(why, fmt.Sprintf("%d parked records block the way back", s.Back.Blocking))
	}
	if len(s.Controllers) == 0 {
		why = append(why, "no controller runs")
	}
	if len(s.Unreadable) > 0 {
		why = append(why, "a value in etcd cannot be read: "+s.Unreadable[0])
	}
	if lag := lagging(s, p.MaxLagMillis); lag != "" {
		why = append(why, lag)
	}
	return strings.Join(why, ", ")
}

func pending(ns upgradestate.Namespace) bool {
	for _, k := range ns.Kinds {
		if k.Pending != nil {
			return true
		}
	}
	return false
}

// lagging returns why the lag of the version that follows is not known to be at most max. It is
// checked only if max is not 0 and a version follows.
func lagging(s deployment.State, most int64) string {
	if most == 0 || !upgradestate.ReverseSynced(s.Record) {
		return ""
	}
	known := map[int]bool{}
	for _, p := range s.Progress {
		if p.Epoch != s.Record.Epoch || p.LagMillis == nil {
			continue
		}
		if *p.LagMillis > most {
			return fmt.Sprintf("shard %d lags %d ms", p.Shard, *p.LagMillis)
		}
		known[p.Shard] = true
	}
	if n := s.Record.RingSize - len(known); n > 0 {
		return fmt.Sprintf("the lag of %d shards is not known", n)
	}
	return ""
}
