package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/engine/distance"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Prover proves the rollback of the running upgrade once, and repeats a failed proof. It knows the
// result and forecasts the pause. It works next to the switch driver and never during a pause. Its
// methods may be called concurrently.
type Prover struct {
	ProverParts
	news    chan struct{} // a proof has a new result
	attempt func(ctx context.Context, d upgradestate.Deployment, what need) error

	mu     sync.Mutex
	id     string // upgrade that the other fields describe
	begun  time.Time
	done   bool
	err    error
	proved proved
	doing  string        // progress of a running proof; empty: none runs
	away   time.Duration // distance of the databases; 0: not measured
	writes time.Duration // latest write time of the coordination store
}

// NewProver returns a Prover without any result yet. Run proves.
func NewProver(parts ProverParts) *Prover {
	p := &Prover{ProverParts: parts, news: make(chan struct{}, 1)}
	p.attempt = p.prove
	return p
}

// News returns a channel that signals each new result of a proof.
func (p *Prover) News() <-chan struct{} { return p.news }

// need is the requirement before an upgrade may switch.
type need int

const (
	needNothing need = iota + 1
	needRenames      // no reverse sync will exist: only measure the switch
	needProof
)

// needs returns the requirement of an upgrade, and the reason if its rollback is not proved.
func (p Proofs) needs(d upgradestate.Deployment, to string, snapshot bool) (need, string) {
	switch {
	case snapshot:
		// A switch to the snapshot needs neither a stream nor a transformer. The return from it
		// is a later upgrade with its own proof.
		return needNothing, fmt.Sprintf("not needed: this returns to the snapshot of %s; %s stays as it is until an upgrade to it begins", to, d.CurrentVersion)
	case to == upgradestate.PreviousVersion(d) && !d.LastSwitch.Back:
		// A rollback repairs a bad switch, so it must never wait for a proof.
		return needNothing, fmt.Sprintf("not needed: this returns to %s", to)
	case !p.Kept(d.CurrentVersion):
		return needRenames, fmt.Sprintf("disabled: the only rollback to %s will be to the snapshot", d.CurrentVersion)
	default:
		return needProof, ""
	}
}

// Bounds of the pause after a failed proof.
const (
	proveAgainFirst = 2 * time.Second
	proveAgainMost  = time.Minute
	// measureAgain is the interval of repeated measurements while the predicted pause is too long.
	measureAgain = 10 * time.Second
)

// A proof during a copy slows the copy with its scratch collections and renames. Its stream also
// has to pass all copied records. So a proof waits for the end of the copy, but at most
// copyPatience: during a copy of days, operators must learn early about a rollback that fails. If a
// database is far away, proof and copy mostly wait for its answers, and both do so at once.
const (
	copyPatience = time.Minute
	copyLook     = 250 * time.Millisecond // interval of the checks
	// distanceTimeout bounds the measurement of the distance.
	distanceTimeout = 3 * time.Second
)

// Run proves until ctx ends and returns ctx's error.
func (p *Prover) Run(ctx context.Context) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(proveAgainFirst),
		backoff.WithMaxInterval(proveAgainMost), backoff.WithMaxElapsedTime(0))
	var next time.Time // earliest time of a repetition; zero: not set
	step := func(ctx context.Context, d upgradestate.Deployment) (time.Duration, error) {
		u := d.Upgrade
		if u == nil || u.Step != upgradestate.StepNone {
			return 0, nil
		}
		// A new upgrade starts without the pauses of the last one.
		if p.begin(u.ID) {
			retry.Reset()
			next = time.Time{}
		}
		what, _ := p.needs(d, u.TargetVersion, u.Snapshot)
		if what == needNothing || !p.ready(d) {
			return 0, nil // keep next: the shards may not be ready when it comes
		}
		// A proof runs once. Only a predicted pause that is too long justifies a new measurement.
		if p.ended() && !p.tooLong(d) {
			return 0, nil
		}
		if p.tried() {
			if next.IsZero() { // one slow measurement must not block the switch for good
				next = time.Now().Add(measureAgain)
			}
			if wait := time.Until(next); wait > 0 {
				return wait, nil
			}
		}
		next = time.Time{}
		if wait, err := p.duringCopy(ctx, d); wait > 0 || err != nil {
			return wait, err
		}
		if err := p.attempt(ctx, d, what); err != nil { // attempt has logged the error
			wait := retry.NextBackOff()
			next = time.Now().Add(wait)
			return wait, nil
		}
		if p.tooLong(d) {
			next = time.Now().Add(measureAgain)
			return measureAgain, nil
		}
		return 0, nil
	}
	return reconcile.Loop[upgradestate.Deployment]{Step: step}.Run(ctx, p.Deployments.Watch(ctx))
}

// tooLong reports whether the renames alone predict a longer pause than the upgrade allows.
func (p *Prover) tooLong(d upgradestate.Deployment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	total, known := switchover.Predict(p.proved.parts(p.writes), d.LastSwitch)
	most := d.Upgrade.Policy.MaxPauseMillis
	return known && most > 0 && total > time.Duration(most)*time.Millisecond
}

// ended reports whether the present upgrade has met its requirement.
func (p *Prover) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// ready reports whether a proof can start. Groups by content are found through the lineage, which
// the copy has to build first.
func (p *Prover) ready(d upgradestate.Deployment) bool {
	dir, err := p.Registry.Direction(d.CurrentVersion, d.Upgrade.TargetVersion)
	// An error counts as ready: the proof then reports it.
	return err != nil || upgradestate.AllReady(d) || !slices.ContainsFunc(kindNames(dir.TargetKinds()), transform.IsLineage)
}

// begin forgets the results of another upgrade. It reports whether it did.
func (p *Prover) begin(id string) (other bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == id {
		return false
	}
	p.id, p.begun, p.done, p.err, p.proved, p.away = id, time.Now(), false, nil, proved{}, 0
	return true
}

// duringCopy returns the time until the next check of the copy; 0 means that the proof need not
// wait, or no longer.
func (p *Prover) duringCopy(ctx context.Context, d upgradestate.Deployment) (time.Duration, error) {
	p.mu.Lock()
	waited := time.Since(p.begun)
	p.mu.Unlock()
	if waited >= copyPatience || upgradestate.AllReady(d) {
		return 0, nil
	}
	shards, err := p.Deployments.Progress(ctx)
	if err != nil {
		return 0, fmt.Errorf("check the copy: %w", err)
	}
	// Missing reports count as copying: a shard without an owner has not finished.
	copies := func(s syncer.Progress) bool { return s.State == syncer.StateCopying }
	if len(shards) == d.RingSize && !slices.ContainsFunc(shards, copies) || p.isFar(ctx, d) {
		return 0, nil
	}
	p.isDoing(fmt.Sprintf("waits for the end of the copy, %s at most", copyPatience))
	return copyLook, nil
}

// isFar reports whether one of the databases of an upgrade is far away. It measures once for an
// upgrade, and again after a failure.
func (p *Prover) isFar(ctx context.Context, d upgradestate.Deployment) bool {
	p.mu.Lock()
	away := p.away
	p.mu.Unlock()
	if away != 0 {
		return away > distance.Near
	}
	older, newer := p.Quiet(d.CurrentVersion), p.Quiet(d.Upgrade.TargetVersion)
	if older == nil || newer == nil {
		return false // the proof reports it
	}
	// A database that does not answer must not keep the prover from following the deployment.
	ctx, cancel := context.WithTimeout(ctx, distanceTimeout)
	defer cancel()
	away, err := distance.Farther(ctx, older, newer)
	if err != nil {
		p.Log.Debug("the distance of the databases is not measured", zap.Error(err))
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = max(away, 1) // 0 stands for an unknown distance
	return away > distance.Near
}

// tried reports whether a proof of the present upgrade has ended, with or without success.
func (p *Prover) tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done || p.err != nil
}

// prove runs one proof, or repeats only the measurement if the rollback is proved already.
func (p *Prover) prove(ctx context.Context, d upgradestate.Deployment, what need) error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	var found proved
	// After a proof only the renames are repeated: the records would give the same result.
	work, err := p.proof(d, d.Upgrade.TargetVersion, what == needRenames || done)
	start := time.Now()
	if err == nil {
		work.at = p.isDoing
		found, err = work.run(ctx)
		p.isDoing("")
	}
	// An interrupted proof has no result.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	switch {
	case err == nil && done:
		// A repeated measurement moves no records, so keep the counts of the proof.
		found.records, found.kinds, found.skipped, found.altered = p.proved.records, p.proved.kinds, p.proved.skipped, p.proved.altered
		p.proved = found
	case err == nil:
		p.done, p.err, p.proved = true, nil, found
		p.Log.Info("the proof of the rollback has ended", zap.String("upgrade", d.Upgrade.ID), zap.Int("records", found.records),
			zap.Bool("only measured", what == needRenames), zap.Duration("took", time.Since(start)))
	case !done:
		p.err = err
		p.Log.Warn("the rollback is not proved; the proof will be retried", zap.String("upgrade", d.Upgrade.ID), zap.Error(err))
	default:
		// The proof still stands; only its measurement is old.
		p.Log.Info("cannot measure the renames again", zap.Error(err))
	}
	return err
}

// isDoing publishes the progress of a proof.
func (p *Prover) isDoing(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = what
}

// signal merges signals: a waiting reader sees the latest state anyway.
func (p *Prover) signal() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// blocks returns the reason that blocks the switch; nil if none does.
func (p *Prover) blocks(d upgradestate.Deployment) error {
	what, _ := p.needs(d, d.Upgrade.TargetVersion, d.Upgrade.Snapshot)
	p.mu.Lock()
	defer p.mu.Unlock()
	// A result of another upgrade proves nothing about this one.
	mine := p.id == d.Upgrade.ID
	switch {
	// Without a rollback a failed measurement must not block: there is nothing to prove.
	case what == needNothing, mine && p.done, what == needRenames && mine && p.err != nil:
		return nil
	case what == needRenames:
		return errors.New("the running measurement of the renames") // the switch must not run at the same time
	case mine && p.err != nil:
		return fmt.Errorf("a proof of the rollback: %w; it is retried automatically (to do without a rollback, set disabled: true for %s in dbs)", p.err, d.CurrentVersion)
	default:
		return errors.New("the running proof of the rollback")
	}
}

// Publish publishes a readiness report, and measures the coordination store by that. It returns
// switchover.ErrNotYet without a lease.
func (p *Prover) Publish(ctx context.Context, o *switchover.Readiness) error {
	start := time.Now()
	lease := p.Lease()
	if lease == 0 {
		return switchover.ErrNotYet // without a lease the report would outlive this controller
	}
	if err := p.Deployments.PublishReadiness(ctx, o, lease); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = time.Since(start)
	return nil
}

var _ switchover.Forecaster = (*Prover)(nil)

// Forecast predicts the parts of the pause from the measurements in scratch collections, from the
// lag, and from the servers' restart times.
func (p *Prover) Forecast(ctx context.Context, d upgradestate.Deployment) switchover.Forecast {
	what, text := p.needs(d, d.Upgrade.TargetVersion, d.Upgrade.Snapshot)
	p.mu.Lock()
	// Copy under the lock, and query the deployment after it: those queries may take long.
	known := p.id == d.Upgrade.ID && p.done
	found, problem, writes, doing := p.proved, p.err, p.writes, p.doing
	if p.id != d.Upgrade.ID {
		problem, doing = nil, ""
	}
	p.mu.Unlock()
	f := switchover.Forecast{Rollback: text}
	switch {
	case what == needNothing:
		f.Proof = switchover.ProofNotAsked
	case what == needRenames:
		f.Proof = switchover.ProofDisabled
	case known:
		f.Rollback, f.Proof = found.String(), switchover.ProofProved
	case problem != nil:
		f.Rollback, f.Proof = "not proved: "+problem.Error(), switchover.ProofFailed
	case doing != "":
		f.Rollback, f.Proof = "not proved yet: the proof "+doing, switchover.ProofRunning
	default:
		f.Rollback, f.Proof = "not proved yet", switchover.ProofRunning
	}
	if !known {
		return f
	}
	f.Parts = found.parts(writes)
	shards, err := p.Deployments.Progress(ctx)
	for _, s := range shards {
		if s.LagMillis != nil {
			// The drain has to apply the lag before it can report ready.
			f.Parts["drain"] = max(f.Parts["drain"], time.Duration(*s.LagMillis)*time.Millisecond+found.write+2*writes)
		}
	}
	servers, serversErr := p.Deployments.Servers(ctx)
	for _, s := range servers {
		f.Parts["restart"] = max(f.Parts["restart"], time.Duration(s.RestartMillis)*time.Millisecond)
	}
	// Lag and restarts are optional; the forecast is too low without them.
	if err := errors.Join(err, serversErr); err != nil && ctx.Err() == nil {
		p.Log.Info("the prediction of the pause leaves out lag and restarts", zap.Error(err))
	}
	return f
}

// parts returns the parts of the pause, keyed like upgradestate.Switch.Millis: the renames, and the
// writes of the record between them.
func (f proved) parts(write time.Duration) map[string]time.Duration {
	return map[string]time.Duration{
		"hold":  3 * write, // announcement, acknowledgements, next step
		"fence": f.fence + write,
		"drain": f.write + 2*write,
		"flip":  f.sealTarget + f.last + 3*write,
	}
}

func (f proved) String() string {
	text := fmt.Sprintf("proved: %d records of %d kinds were migrated there and back in scratch collections, and the changes can be followed", f.records, f.kinds)
	if f.records == 0 {
		text = "proved with empty scratch collections, because there were no records to try; the changes can be followed"
	}
	if f.altered > 0 {
		text += fmt.Sprintf("; a one-way transformer altered %d of them", f.altered)
	}
	if f.skipped > 0 {
		text += fmt.Sprintf(" (%d more groups cannot be migrated, and stay)", f.skipped)
	}
	return text
}
