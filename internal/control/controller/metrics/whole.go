package metrics

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/upgradestate"
)

// whole collects the metrics of the deployment. Every controller exports them, so that one live
// controller is enough. It reads the deployment on demand. Unknown values have no series, or a
// series that marks them as unknown: a 0 would look like good news, and an old value like a new one.
type whole struct {
	Source

	mu    sync.Mutex // held during a read
	shown []prometheus.Metric
	until time.Time // time of the next read
}

const (
	readWhole = 2 * time.Second // a scrape must not hang on etcd
	keepWhole = time.Second
	// shareWhole bounds the load of frequent scrapes. A result is reused for this multiple of the
	// time its read took, because a read with thousands of parked groups takes long.
	shareWhole = 10
)

// These are the values of the phase and kind labels.
const (
	phaseSteady     = "STEADY"
	kindServer      = "server"
	kindApplication = "application"
)

var (
	phases = []string{phaseSteady, string(upgradestate.InitialSyncing), string(upgradestate.Switching)}
	steps  = []upgradestate.Step{upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain,
		upgradestate.StepSealTarget, upgradestate.StepSealSource, upgradestate.StepAbort}
	processStates = map[string][]string{kindServer: {"serving", "holding", "behind"}, kindApplication: {"registered", "holding"}}
)

var (
	known           = desc("deployment_known", "1 if the last read of the deployment succeeded. 0: its other series are absent.")
	version         = desc("deployment_version", "1 for the current version.", "version")
	epoch           = desc("deployment_epoch", "Grows by one with each switch.")
	phaseIs         = desc("deployment_phase", "1 for the current phase; STEADY: no upgrade runs.", "phase")
	ringSize        = desc("deployment_shards", "Shards of the deployment.")
	reporting       = desc("deployment_reporting_shards", "Shards for which a controller reports.")
	controllerCount = desc("deployment_controllers", "Controllers that are alive.")
	processes       = desc("deployment_processes", "Servers and applications that are registered: serving the current version, or another one (behind), or holding writes for the switch that runs.", "kind", "state")
	heldWrites      = desc("deployment_held_writes", "Writes that wait at the servers, by their last reports.")
	lagKnown        = desc("deployment_lag_known", "1 if the lag of every shard is known.")
	lag             = desc("deployment_lag_seconds", "Age of the newest change when it was applied, of the shard with the largest lag; no series while unknown.")
	parkedGroups    = desc("deployment_parked_groups", "Parked groups that are not waived, in the current direction; no series unless all shards report.")
	mismatched      = desc("deployment_mismatched_groups", "Groups that differ now, and not because they just changed; no series unless all shards report.")
	paused          = desc("deployment_paused", "1 while an operator has bulk work paused.")
	throttled       = desc("deployment_throttled_shards", "Shards whose bulk work is throttled, by reason.", "reason")
	breaches        = desc("fence_breaches", "Fences that were found broken and that no operator has acknowledged.")
	undecided       = desc("deployment_restored", "1 while an operator must decide which data count, because the database of the current version was restored from a backup.")
	anew            = desc("deployment_replaced_collections", "Collections that applications have replaced and that controllers have not copied and compared again yet.")

	target         = desc("upgrade_target", "1 for the target version of the running upgrade.", "version")
	stepIs         = desc("upgrade_step", "1 for the current step of the switch; all 0: no switch runs.", "step")
	readyShards    = desc("upgrade_ready_shards", "Shards that have reported ready for the running upgrade.")
	failedAttempts = desc("upgrade_failed_attempts", "Failed attempts at the switch of the running upgrade.")
	blockers       = desc("upgrade_switch_blockers", "Number of reasons that the switch waits for; see 'get'. No series while unknown.")
	blockedBy      = desc("switch_blocked", "Reasons that block the switch, by code; see 'get'. Codes without a reason are 0; no series while unknown.", "reason")
	holdSeconds    = desc("upgrade_hold_seconds", "Time for which the running switch has held writes, by the clocks of the controllers; 0: no switch runs.")
	predicted      = desc("upgrade_predicted_pause_seconds", "Predicted time for which the switch holds writes; no series while unknown.")
	proof          = desc("upgrade_proof", "1 for the state of the rollback's proof before the switch. All 0: unknown yet.", "state")

	switchedAt  = desc("switch_timestamp_seconds", "Time of the latest switch.")
	switchPause = desc("switch_pause_seconds", "Time for which the latest switch held writes, measured by its driver.")
	switchStep  = desc("switch_step_seconds", "The parts of dbcontroller_switch_pause_seconds.", "step")

	rollbackPossible = desc("rollback_possible", "1 if the version before the latest switch exists and no rollback to it was made.")
	rollbackSafe     = desc("rollback_safe", "1 if a rollback would lose nothing; no series if no rollback is possible.")
	rollbackParked   = desc("rollback_parked_groups", "Groups that a rollback cannot migrate and that are not waived; no series if no rollback is possible.")
	reverseSync      = desc("rollback_reverse_sync", "1 while the version before the latest switch is kept in sync.")

	rolloutState = desc("rollout_state", "1 for each rollout with this deployment that is not done or rolled back, by its state, wave and step.", "rollout", "state", "wave", "step")
)

var wholeDescs = []*prometheus.Desc{known, version, epoch, phaseIs, ringSize, reporting, controllerCount, processes, heldWrites, lagKnown,
	lag, parkedGroups, mismatched, paused, throttled, breaches, undecided, anew, target, stepIs, readyShards, failedAttempts, blockers, blockedBy, holdSeconds,
	predicted, proof, switchedAt, switchPause, switchStep, rollbackPossible, rollbackSafe, rollbackParked, reverseSync, rolloutState}

func (w *whole) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range wholeDescs {
		ch <- d
	}
}

func (w *whole) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if start := time.Now(); !start.Before(w.until) {
		w.read()
		now := time.Now()
		w.until = now.Add(max(keepWhole, shareWhole*now.Sub(start)))
		if len(w.shown) == 1 {
			w.until = now.Add(keepWhole) // nothing was read; try again soon
		}
	}
	for _, m := range w.shown {
		ch <- m
	}
}

// read refreshes the metrics. It does not log an error, because other code that needs the record
// logs it.
func (w *whole) read() {
	// Collect has no context of the scrape.
	ctx, cancel := context.WithTimeout(context.Background(), readWhole)
	defer cancel()
	w.shown = nil
	d, err := w.Deployments.Get(ctx)
	var s deployment.State
	if err == nil {
		s, err = w.Deployments.State(ctx, d)
	}
	w.gauge(known, truth(err == nil))
	if err == nil {
		// After a failure only deployment_known remains, as 0.
		w.show(s, time.Now())
		w.showRollouts(d.Name)
	}
}

// showRollouts shows the rollouts that somebody may have to look at.
func (w *whole) showRollouts(name string) {
	for _, r := range w.Rollouts() {
		if _, _, in := r.Item(name); !in || r.State == rollout.Done || r.State == rollout.RolledBack {
			continue
		}
		w.gauge(rolloutState, 1, r.Name, string(r.State), strconv.Itoa(r.Wave+1), string(r.Step))
	}
}

func (w *whole) gauge(d *prometheus.Desc, v float64, labels ...string) {
	w.shown = append(w.shown, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
}

// show derives all metrics from the status that 'get' shows, so that the two never differ.
func (w *whole) show(s deployment.State, now time.Time) {
	d := status.Of(s, status.Process{Waits: w.Waits(), Away: w.BackAway(s.Record)})
	w.gauge(version, 1, d.CurrentVersion)
	w.gauge(epoch, float64(d.Epoch))
	w.gauge(ringSize, float64(d.RingSize))
	w.gauge(controllerCount, float64(len(d.Controllers)))
	w.gauge(paused, truth(s.Record.Pace.Paused))
	w.gauge(breaches, float64(len(d.Breaches)))
	w.gauge(undecided, truth(d.Restored != ""))
	w.gauge(anew, float64(len(d.Replaced.GetKinds())))
	w.showProcesses(d)
	w.showSync(s, d)
	w.showUpgrade(s, d, now)
	w.showSwitch(d)
}

func (w *whole) showProcesses(d *pb.Deployment) {
	type key struct{ kind, state string }
	count, held := map[key]int{}, 0
	for _, p := range d.Servers {
		k := key{kindServer, "serving"}
		if p.Client {
			k = key{kindApplication, "registered"}
		}
		switch {
		case p.Acked:
			k.state = "holding"
		case p.ActiveVersion != "" && p.ActiveVersion != d.CurrentVersion:
			k.state = "behind"
		}
		count[k]++
		held += int(p.Held)
	}
	for _, kind := range slices.Sorted(maps.Keys(processStates)) {
		for _, state := range processStates[kind] {
			w.gauge(processes, float64(count[key{kind, state}]), kind, state)
		}
	}
	w.gauge(heldWrites, float64(held))
}

func (w *whole) showSync(s deployment.State, d *pb.Deployment) {
	p := d.Progress
	w.gauge(reporting, float64(p.ReportingShards))
	w.gauge(lagKnown, truth(p.MaxLagMillis != nil))
	if p.MaxLagMillis != nil {
		w.gauge(lag, seconds(*p.MaxLagMillis))
	}
	if p.ReportingShards == d.RingSize {
		w.gauge(parkedGroups, float64(p.Parked))
		w.gauge(mismatched, float64(p.Mismatched))
	}
	back := map[throttle.Cause]int{}
	for _, shard := range s.Progress {
		if shard.PaceCause != throttle.CausePaused || s.Record.Pace.Paused { // else outdated
			back[shard.PaceCause]++
		}
	}
	for _, cause := range throttle.Causes {
		w.gauge(throttled, float64(back[cause]), string(cause))
	}
}

func (w *whole) showUpgrade(s deployment.State, d *pb.Deployment, now time.Time) {
	phase, step, held := phaseSteady, upgradestate.StepNone, time.Duration(0)
	if u := s.Record.Upgrade; u != nil {
		phase, step, held = string(u.State), u.Step, heldFor(s.Record, now)
		w.gauge(target, 1, u.TargetVersion)
		w.gauge(readyShards, float64(len(u.ReadyShards)))
		w.gauge(failedAttempts, float64(u.Failures))
		if d.Readiness != nil {
			w.gauge(blockers, float64(len(d.Readiness.WaitsFor)))
			counts := map[string]int{}
			for _, b := range d.Readiness.Blockers {
				counts[b.Code]++
			}
			for code := range upgradestate.BlockCodes {
				w.gauge(blockedBy, float64(counts[string(code)]), string(code))
			}
		}
		if d.Readiness != nil && d.Readiness.PredictedPauseMillis != nil {
			w.gauge(predicted, seconds(*d.Readiness.PredictedPauseMillis))
		}
		for _, state := range switchover.ProofStates {
			w.gauge(proof, truth(s.Readiness != nil && s.Readiness.ID == u.ID && s.Readiness.Proof == state), string(state))
		}
	}
	for _, p := range phases {
		w.gauge(phaseIs, truth(p == phase), p)
	}
	for _, st := range steps {
		w.gauge(stepIs, truth(st == step), string(st))
	}
	w.gauge(holdSeconds, held.Seconds())
}

// heldFor returns how long the present switch attempt has held writes, according to the history.
func heldFor(d upgradestate.Deployment, now time.Time) time.Duration {
	if d.Upgrade == nil || d.Upgrade.State != upgradestate.Switching {
		return 0
	}
	for _, e := range slices.Backward(d.History) {
		if e.What != "upgrade" || e.ID != d.Upgrade.ID {
			continue
		}
		for _, p := range slices.Backward(e.Phases) {
			if since, err := time.Parse(time.RFC3339Nano, p.At); err == nil && p.Phase == string(upgradestate.StepHold) {
				return max(0, now.Sub(since))
			}
		}
	}
	return 0
}

func (w *whole) showSwitch(d *pb.Deployment) {
	if last := d.LastSwitch; last != nil {
		if at, err := time.Parse(time.RFC3339Nano, last.At); err == nil {
			w.gauge(switchedAt, float64(at.UnixMilli())/1000)
		}
		for _, step := range slices.Sorted(maps.Keys(last.Millis)) {
			w.gauge(switchStep, seconds(int64(last.Millis[step])), step)
		}
		w.gauge(switchPause, seconds(int64(last.PauseMillis)))
	}
	w.gauge(reverseSync, truth(d.ReverseSync.GetEnabled()))
	w.gauge(rollbackPossible, truth(d.RollbackSafe != nil))
	if back := d.RollbackSafe; back != nil {
		w.gauge(rollbackSafe, truth(back.Safe))
		w.gauge(rollbackParked, float64(back.Blocking))
	}
}
