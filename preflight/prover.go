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

	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Prover has the rollback of the upgrade that runs proved, once for each upgrade and again
// while it fails, and knows what came of it. It works next to the driver, never in a pause.
type Prover struct {
	ProverParts
	news    chan struct{} // something came of a proof
	attempt func(ctx context.Context, d upgradestate.Deployment, what need) error

	mu     sync.Mutex
	id     string // of the upgrade that the rest is about
	begun  time.Time
	done   bool
	err    error
	proved proved
	doing  string        // what a proof that runs is about; empty: none runs
	writes time.Duration // of the coordination store, the latest
}

// NewProver returns a Prover that has proved nothing yet.
func NewProver(parts ProverParts) *Prover {
	p := &Prover{ProverParts: parts, news: make(chan struct{}, 1)}
	p.attempt = p.prove
	return p
}

// News is signalled when something came of a proof.
func (p *Prover) News() <-chan struct{} { return p.news }

// need is what an upgrade needs before it may switch.
type need int

const (
	needNothing need = iota + 1
	needRenames      // no reverse sync is kept: only the switch is measured
	needProof
)

// needs decides what an upgrade needs, and says of a rollback that is not proved why.
func (p Proofs) needs(d upgradestate.Deployment, to string, snapshot bool) (need, string) {
	switch {
	case snapshot:
		// It needs neither a stream nor a transformer, and the version behind it is reached
		// again by an upgrade with a proof of its own.
		return needNothing, fmt.Sprintf("not asked for: this goes back to the snapshot of %s; %s stays as it is until an upgrade to it begins", to, d.CurrentVersion)
	case to == upgradestate.PreviousVersion(d) && !d.LastSwitch.Back:
		// A rollback must never wait for what it is the remedy of.
		return needNothing, fmt.Sprintf("not asked for: this goes back to %s", to)
	case !p.Kept(d.CurrentVersion):
		return needRenames, fmt.Sprintf("disabled: there will be no rollback to %s but to the snapshot", d.CurrentVersion)
	default:
		return needProof, ""
	}
}

// Bounds of the time between two proofs of which the first failed.
const (
	proveAgainFirst = 2 * time.Second
	proveAgainMost  = time.Minute
	// measureAgain is how often the renames are measured again while the pause that they
	// predict is too long.
	measureAgain = 10 * time.Second
)

// During a copy a proof takes from it what scratch collections and renames cost, and its stream has
// to pass all that is copied meanwhile. It waits for the end of the copy, but not longer than
// copyPatience: who copies for days is to hear before that of a rollback that fails.
const (
	copyPatience = time.Minute
	copyLook     = 250 * time.Millisecond // between two looks at whether it goes on
)

// Run proves until ctx ends.
func (p *Prover) Run(ctx context.Context) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(proveAgainFirst),
		backoff.WithMaxInterval(proveAgainMost), backoff.WithMaxElapsedTime(0))
	var next time.Time // before which nothing is tried a second time; zero: no time is set
	step := func(ctx context.Context, d upgradestate.Deployment) (time.Duration, error) {
		u := d.Upgrade
		if u == nil || u.Step != upgradestate.StepNone {
			return 0, nil
		}
		if p.begin(u.ID) {
			retry.Reset()
			next = time.Time{}
		}
		what, _ := p.needs(d, u.TargetVersion, u.Snapshot)
		if what == needNothing || !p.ready(d) {
			return 0, nil // next stays: the shards may not be ready when it comes
		}
		if p.ended() && !p.tooLong(d) {
			return 0, nil
		}
		if p.tried() {
			if next.IsZero() { // what was measured in a bad moment must not hold the switch up for good
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
		if err := p.attempt(ctx, d, what); err != nil { // it has logged that
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

// ended reports whether the present upgrade has what it needs.
func (p *Prover) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// ready reports whether there is something to try: groups by content are found through the
// lineage of the copy.
func (p *Prover) ready(d upgradestate.Deployment) bool {
	dir, err := p.Registry.Direction(d.CurrentVersion, d.Upgrade.TargetVersion)
	return err != nil || upgradestate.AllReady(d) || !slices.ContainsFunc(kindNames(dir.TargetKinds()), transform.IsLineage)
}

// begin forgets what is known of another upgrade.
func (p *Prover) begin(id string) (other bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id == id {
		return false
	}
	p.id, p.begun, p.done, p.err, p.proved = id, time.Now(), false, nil, proved{}
	return true
}

// duringCopy returns when to look again whether the copy goes on; 0: there is nothing to wait for,
// or no more.
func (p *Prover) duringCopy(ctx context.Context, d upgradestate.Deployment) (time.Duration, error) {
	p.mu.Lock()
	waited := time.Since(p.begun)
	p.mu.Unlock()
	if waited >= copyPatience || upgradestate.AllReady(d) {
		return 0, nil
	}
	shards, err := p.Deployments.Progress(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at the copy: %w", err)
	}
	copies := func(s syncer.Progress) bool { return s.State == syncer.StateCopying }
	if len(shards) == d.RingSize && !slices.ContainsFunc(shards, copies) {
		return 0, nil
	}
	p.isDoing(fmt.Sprintf("waits for the end of the copy, %s at most", copyPatience))
	return copyLook, nil
}

// tried reports whether a proof of the present upgrade has ended.
func (p *Prover) tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done || p.err != nil
}

func (p *Prover) prove(ctx context.Context, d upgradestate.Deployment, what need) error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	var found proved
	work, err := p.proof(d, d.Upgrade.TargetVersion, what == needRenames || done)
	start := time.Now()
	if err == nil {
		work.at = p.isDoing
		found, err = work.run(ctx)
		p.isDoing("")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	switch {
	case err == nil && done:
		found.records, found.kinds, found.skipped, found.altered = p.proved.records, p.proved.kinds, p.proved.skipped, p.proved.altered
		p.proved = found
	case err == nil:
		p.done, p.err, p.proved = true, nil, found
		p.Log.Info("proof of the rollback has ended", zap.String("upgrade", d.Upgrade.ID), zap.Int("records", found.records),
			zap.Bool("only measured", what == needRenames), zap.Duration("took", time.Since(start)))
	case !done:
		p.err = err
		p.Log.Warn("the rollback is not proved, and is tried again", zap.String("upgrade", d.Upgrade.ID), zap.Error(err))
	default:
		p.Log.Info("renames could not be measured again", zap.Error(err))
	}
	return err
}

func (p *Prover) isDoing(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = what
}

func (p *Prover) signal() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// blocks returns what blocks the switch; nil is nothing.
func (p *Prover) blocks(d upgradestate.Deployment) error {
	what, _ := p.needs(d, d.Upgrade.TargetVersion, d.Upgrade.Snapshot)
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.id == d.Upgrade.ID
	switch {
	case what == needNothing, mine && p.done, what == needRenames && mine && p.err != nil:
		return nil
	case what == needRenames:
		return errors.New("the measurement of the renames, which runs") // not during them
	case mine && p.err != nil:
		return fmt.Errorf("a proof of the rollback: %w; it is tried again by itself (or give the rollback up: disabled: true for %s in dbs)", p.err, d.CurrentVersion)
	default:
		return errors.New("the proof of the rollback, which runs")
	}
}

// Publish shows a readiness report, and notes how long the coordination store took.
func (p *Prover) Publish(ctx context.Context, o *switchover.Readiness) error {
	start := time.Now()
	lease := p.Lease()
	if lease == 0 {
		return switchover.ErrNotYet // without a lease, what it says would outlive this controller
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

// Forecast predicts the parts of the pause from what was measured in scratch collections,
// and of lag and restarts.
func (p *Prover) Forecast(ctx context.Context, d upgradestate.Deployment) switchover.Forecast {
	what, text := p.needs(d, d.Upgrade.TargetVersion, d.Upgrade.Snapshot)
	p.mu.Lock()
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
			f.Parts["drain"] = max(f.Parts["drain"], time.Duration(*s.LagMillis)*time.Millisecond+found.write+2*writes)
		}
	}
	servers, serversErr := p.Deployments.Servers(ctx)
	for _, s := range servers {
		f.Parts["restart"] = max(f.Parts["restart"], time.Duration(s.RestartMillis)*time.Millisecond)
	}
	if err := errors.Join(err, serversErr); err != nil && ctx.Err() == nil {
		p.Log.Info("prediction of the pause lacks lag and restarts", zap.Error(err))
	}
	return f
}

// parts are the parts of the pause by the names of upgradestate.Switch.Millis: the renames,
// and the writes of the record that stand between them.
func (f proved) parts(write time.Duration) map[string]time.Duration {
	return map[string]time.Duration{
		"hold":  3 * write, // the announcement, the acknowledgements, and the next step
		"fence": f.fence + write,
		"drain": f.write + 2*write,
		"flip":  f.sealTarget + f.last + 3*write,
	}
}

func (f proved) String() string {
	text := fmt.Sprintf("proved: %d records of %d kinds went there and back in scratch collections, and the changes can be followed", f.records, f.kinds)
	if f.records == 0 {
		text = "proved with scratch collections alone, since no records were there to try; the changes can be followed"
	}
	if f.altered > 0 {
		text += fmt.Sprintf("; %d of them came back altered, by a transformer that is declared one-way", f.altered)
	}
	if f.skipped > 0 {
		text += fmt.Sprintf(" (%d more groups cannot be migrated, and stay)", f.skipped)
	}
	return text
}
