package rollout

import (
	"cmp"
	"fmt"
	"time"

	"dbcontroller.dev/upgradestate"
)

// Change is what an operator does with a rollout. It returns the new record with its effects as
// sentences. Without effects nothing changes. A refusal is an *upgradestate.RefusedError.
type Change func(r Rollout, by string, at time.Time) (next Rollout, effects []string, err error)

// Pause keeps waves from beginning, and gates from passing.
func Pause(reason string) Change {
	return func(r Rollout, by string, at time.Time) (Rollout, []string, error) {
		r = Clone(r)
		switch r.State {
		case Paused:
			return r, nil, nil
		case Running:
		default:
			return r, nil, refused("pause", r, "only a running rollout can pause")
		}
		r.State, r.Reason = Paused, cmp.Or(reason, "by an operator")
		r.Note(at, by, "pause: "+r.Reason)
		return r, []string{"begin no further deployment and pass no gate until 'rollout resume'; running upgrades go on"}, nil
	}
}

// Stop ends a rollout where it is. It can be resumed.
func Stop(reason string) Change {
	return func(r Rollout, by string, at time.Time) (Rollout, []string, error) {
		r = Clone(r)
		switch r.State {
		case Stopped, RolledBack:
			return r, nil, nil
		case Done:
			return r, nil, refused("stop", r, "it is done")
		}
		does := []string{"begin no further deployment; running upgrades go on"}
		if r.State == RollingBack {
			does = []string{"roll back no further deployment; running rollbacks go on"}
		}
		r.State, r.Reason, r.Waits = Stopped, cmp.Or(reason, "by an operator"), ""
		r.Note(at, by, "stop: "+r.Reason)
		return r, does, nil
	}
}

// Resume continues a rollout. A wave that failed or was rolled back begins again with the
// deployments that do not serve the target.
func Resume() Change {
	return func(r Rollout, by string, at time.Time) (Rollout, []string, error) {
		r = Clone(r)
		switch r.State {
		case Running:
			return r, nil, nil
		case Done, RollingBack:
			return r, nil, refused("resume", r, "only a paused, stopped or rolled back rollout can resume")
		}
		if r.State != Paused {
			r.retry()
		}
		r.State, r.Reason, r.Waits, r.BackTo = Running, "", "", 0
		// Limits begin anew, and so does the hold time of a gate.
		r.restart()
		r.Note(at, by, "resume")
		return r, []string{fmt.Sprintf("continue with wave %d of %d", r.Wave+1, len(r.Waves))}, nil
	}
}

// retry returns to the first wave with a deployment that was not upgraded, and withdraws the orders
// that have ended or went back.
func (r *Rollout) retry() {
	first, again := r.Wave, false
	for w := len(r.Waves) - 1; w >= 0; w-- {
		for i, item := range r.Waves[w].Items {
			if item.Result == Upgraded || item.Result == WasThere {
				continue
			}
			// After an earlier resume, later waves may have orders, too.
			if w <= r.Wave {
				first, again = w, true
			}
			// An upgrade that still runs counts. A rollback that runs has to end first.
			if item.Order != Forward || item.Result != inProgress {
				r.Waves[w].Items[i] = Item{Name: item.Name, Tries: item.Tries}
			}
		}
	}
	switch {
	case again:
		r.Wave, r.Step = first, StepUpgrade
	// A rollback of a rollout that was done, stopped before it gave an order.
	case r.Step == StepPause && r.Wave == len(r.Waves)-1:
		r.Step = StepGate
	}
}

// RollBack returns the deployments of the waves from number wave on, which counts from 1. 0 is the
// current wave.
func RollBack(wave int, reason string) Change {
	return func(r Rollout, by string, at time.Time) (Rollout, []string, error) {
		r = Clone(r)
		if wave < 0 || wave > r.Wave+1 {
			return r, nil, refused("rollback", r, fmt.Sprintf("wave %d has not begun: give a wave from 1 to %d", wave, r.Wave+1))
		}
		to := r.Wave
		if wave > 0 {
			to = wave - 1
		}
		if r.State == RollingBack && r.BackTo <= to {
			return r, nil, nil
		}
		var ordered int
		for w := to; w < len(r.Waves); w++ {
			for i := range r.Waves[w].Items {
				item := &r.Waves[w].Items[i]
				// A deployment that the last rollback gave up gets another chance.
				if item.Result == NotRolled {
					item.Result, item.Returns, item.Detail = inProgress, 0, ""
				}
				if item.Order != "" && item.Result != Returned && item.Result != NotBegun {
					ordered++
				}
			}
		}
		if ordered == 0 {
			return r, nil, nil
		}
		r.restart() // the limit of the rollback begins
		r.State, r.BackTo, r.Reason, r.Waits = RollingBack, to, cmp.Or(reason, "by an operator"), ""
		r.Note(at, by, fmt.Sprintf("rollback from wave %d: %s", to+1, r.Reason))
		return r, []string{fmt.Sprintf("abort or roll back the upgrades that the rollout has begun in the waves %d to %d (%d deployments)", to+1, r.Wave+1, ordered)}, nil
	}
}

// Forgettable returns why a rollout cannot be deleted, nil if it can.
func Forgettable(r Rollout) error {
	switch r.State {
	case Running, Paused, RollingBack:
		return refused("forget", r, "stop it first")
	}
	return nil
}

func refused(verb string, r Rollout, why string) error {
	return &upgradestate.RefusedError{Reason: fmt.Sprintf("rollout %s: %s is %s: %s", verb, r.Name, r.State, why)}
}
