package switchover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/upgradestate"
)

// Readiness reports everything that stands between an upgrade and its switch. It is for operators.
// The driver itself does not begin a switch while WaitsFor has an entry. No other code decides by
// it.
type Readiness struct {
	ID       string   `json:"id"`                 // of the upgrade
	WaitsFor []string `json:"waitsFor,omitempty"` // texts of Blockers; empty: nothing
	// Blockers are the reasons with their codes. Older drivers publish only WaitsFor.
	Blockers []upgradestate.Blocker `json:"blockers,omitempty"`
	// PredictedPauseMillis is the expected time of held writes; nil: unknown yet.
	PredictedPauseMillis *int64 `json:"predictedPauseMillis,omitempty"`
	// PredictedMillis are the parts of the prediction, keyed like upgradestate.Switch.Millis. Their
	// sum is at most the prediction, which is rounded up.
	PredictedMillis map[string]int64 `json:"predictedMillis,omitempty"`
	Rollback        string           `json:"rollback,omitempty"` // whether one will exist, and the evidence
	Proof           Proof            `json:"proof,omitempty"`    // the same in one word
	At              string           `json:"at,omitempty"`       // RFC 3339, time of the last change
}

// same reports whether two reports tell operators the same. It ignores the time, and how a
// prediction that stays the same is divided into parts.
func (o Readiness) same(p Readiness) bool {
	pause := func(o Readiness) int64 {
		if o.PredictedPauseMillis == nil {
			return -1
		}
		return *o.PredictedPauseMillis
	}
	return o.ID == p.ID && slices.EqualFunc(o.Blockers, p.Blockers, upgradestate.Blocker.Equal) && pause(o) == pause(p) && o.Rollback == p.Rollback && o.Proof == p.Proof
}

// block adds a reason that keeps the switch from beginning.
func (o *Readiness) block(b upgradestate.Blocker) {
	o.WaitsFor = append(o.WaitsFor, b.Text)
	o.Blockers = append(o.Blockers, b)
}

// blockErr adds an error as a reason, under code and in the database of version. A code or place in
// the error itself has precedence.
func (o *Readiness) blockErr(code upgradestate.BlockCode, version string, err error) {
	b := upgradestate.BlockerOf(code, err)
	if b.Place.Version == "" {
		b.Place.Version = version
	}
	o.block(b)
}

// texts returns the texts of the reasons.
func texts(all []upgradestate.Blocker) (out []string) {
	for _, b := range all {
		out = append(out, b.Text)
	}
	return out
}

// Proof is the evidence, before a switch, that a rollback will work.
type Proof string

// The states of a Proof.
const (
	ProofNotAsked Proof = "not_asked" // the upgrade is a rollback, or goes to a snapshot
	ProofDisabled Proof = "disabled"  // only a rollback to the snapshot will exist
	ProofRunning  Proof = "running"   // running, or not started
	ProofFailed   Proof = "failed"    // failed; it will be repeated
	ProofProved   Proof = "proved"
)

// ProofStates lists every value of a known Proof.
var ProofStates = []Proof{ProofNotAsked, ProofDisabled, ProofRunning, ProofFailed, ProofProved}

// Forecast is the prediction of a switch.
type Forecast struct {
	Rollback string
	Proof    Proof
	// Parts are the expected durations of the pause's parts, keyed like upgradestate.Switch.Millis;
	// nil: not measured yet.
	Parts map[string]time.Duration
}

// Forecaster predicts the switch of the running upgrade.
type Forecaster interface {
	Forecast(ctx context.Context, d upgradestate.Deployment) Forecast
}

// Publisher shows a readiness report to operators; nil removes it.
type Publisher func(ctx context.Context, o *Readiness) error

// ErrNotYet is returned by a Publisher that cannot publish yet, for example right after its process
// started. The driver publishes the report with a later pass and logs no warning.
var ErrNotYet = errors.New("not yet")

// pauseStep is the rounding step of predictions. It keeps small variations from publishing new
// reports.
const pauseStep = 10 * time.Millisecond

// Predict adds up the parts of the pause that PredictParts returns, and rounds the sum up. ok is
// false if no part is known.
func Predict(parts map[string]time.Duration, last *upgradestate.Switch) (total time.Duration, ok bool) {
	worst := PredictParts(parts, last)
	for _, d := range worst {
		total += d
	}
	if rest := total % pauseStep; rest > 0 {
		total += pauseStep - rest
	}
	return total, len(worst) > 0
}

// PredictParts returns the expected duration of each part of the pause: the present measurement or
// that of the latest switch, whichever is longer. It is empty if neither is known.
func PredictParts(parts map[string]time.Duration, last *upgradestate.Switch) map[string]time.Duration {
	worst := maps.Clone(parts)
	if worst == nil {
		worst = map[string]time.Duration{}
	}
	if last != nil {
		for part, ms := range last.Millis {
			// Scratch collections can be faster than the real ones, so a past switch may know
			// better.
			worst[part] = max(worst[part], time.Duration(ms)*time.Millisecond)
		}
	}
	return worst
}

// checkReadiness finds everything that stands between an upgrade and its switch. A non-empty
// WaitsFor keeps the switch from beginning.
func (r *Driver) checkReadiness(ctx context.Context, d upgradestate.Deployment) Readiness {
	u := d.Upgrade
	o := Readiness{ID: u.ID}
	// lookAgain spaces the checks by their own cost.
	defer func(begun time.Time) { r.looked = time.Since(begun) }(time.Now())
	waitFor := func(code upgradestate.BlockCode, format string, args ...any) {
		o.block(upgradestate.Blocker{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if !upgradestate.AllReady(d) {
		waitFor(upgradestate.BlockShards, "%d of %d shards", d.RingSize-len(u.ReadyShards), d.RingSize)
	}
	for _, b := range upgradestate.SwitchBlockers(d) {
		o.block(b)
	}
	if r.cfg.Waits != nil {
		for _, b := range r.cfg.Waits() {
			o.block(b)
		}
	}
	// An unknown count blocks too: a parked group must not pass unnoticed.
	switch n, err := r.parked(ctx, d); {
	case err != nil:
		waitFor(upgradestate.BlockUncounted, "parked groups cannot be counted: %v", err)
	case n > 0:
		waitFor(upgradestate.BlockParked, "%d parked groups: see 'parked', fix them at the source or waive them", n)
	}
	if window, err := upgradestate.ParseWindow(d.Pace.Window); err != nil {
		waitFor(upgradestate.BlockWindow, "%v: correct it with 'pace'", err)
	} else if !window.Holds(time.Now()) {
		waitFor(upgradestate.BlockWindow, "the window %s UTC, in which a switch may begin", d.Pace.Window)
	}
	if r.cfg.Forecaster != nil {
		f := r.cfg.Forecaster.Forecast(ctx, d)
		o.Rollback, o.Proof = f.Rollback, f.Proof
		if total, ok := Predict(f.Parts, d.LastSwitch); ok {
			ms := total.Milliseconds()
			o.PredictedPauseMillis, o.PredictedMillis = &ms, map[string]int64{}
			for part, d := range PredictParts(f.Parts, d.LastSwitch) {
				o.PredictedMillis[part] = d.Milliseconds()
			}
		}
	}
	switch most := u.Policy.MaxPauseMillis; {
	case most == 0:
	case o.PredictedPauseMillis == nil:
		waitFor(upgradestate.BlockPause, "a prediction of the pause, which must be at most %d ms", most)
	case *o.PredictedPauseMillis > most:
		waitFor(upgradestate.BlockPause, "a shorter pause: %d ms are predicted, and at most %d ms are allowed: raise the limit with 'set-policy --max-pause', or wait for a quieter time",
			*o.PredictedPauseMillis, most)
	}
	if why := r.recovering(d); why != "" {
		waitFor(upgradestate.BlockRetry, "%s", why)
	}
	// Ask the databases only when all shards are ready. Until then the engine still creates and
	// fills the collections.
	if upgradestate.AllReady(d) {
		found, err := r.hindrances(ctx, d)
		if err != nil {
			o.blockErr(upgradestate.BlockUnanswered, "", fmt.Errorf("an answer of the databases, whether anything would block the switch: %w", err))
		}
		for _, b := range found {
			o.block(b)
		}
	}
	if r.cfg.Checks != nil && upgradestate.AllReady(d) {
		for _, err := range r.cfg.Checks.BeforeSwitch(ctx, d) {
			o.blockErr(upgradestate.BlockIdentity, "", err)
		}
	}
	return o
}

// parked counts the parked groups that the switch would leave behind and that no operator has
// waived. A rollback to the snapshot accepts all of them.
func (r *Driver) parked(ctx context.Context, d upgradestate.Deployment) (int, error) {
	if d.Upgrade.Snapshot {
		return 0, nil
	}
	return r.deployments.Parked(ctx)
}

// publishTrouble publishes the error of a failed step, next to the earlier findings.
func (r *Driver) publishTrouble(ctx context.Context, d upgradestate.Deployment, err error) {
	r.trouble = err
	r.publish(ctx, r.report(d))
}

// troubleOver removes the error that publishTrouble has published.
func (r *Driver) troubleOver(ctx context.Context, d upgradestate.Deployment) {
	if r.trouble == nil {
		return
	}
	// Only a published report can contain the error.
	if r.trouble = nil; r.readiness != nil {
		r.publish(ctx, r.report(d))
	}
}

// idle returns what controllers wait for without an upgrade; nil: nothing.
func (r *Driver) idle() *Readiness {
	if r.cfg.Waits == nil {
		return nil
	}
	var o Readiness
	for _, b := range r.cfg.Waits() {
		o.block(b)
	}
	if len(o.Blockers) == 0 {
		return nil
	}
	return &o
}

// report returns the latest findings that still apply to the record, without the error of the
// latest pass; nil if there is nothing to report.
func (r *Driver) report(d upgradestate.Deployment) *Readiness {
	o := Readiness{}
	if u := d.Upgrade; u != nil {
		o.ID = u.ID
		if was := r.readiness; was != nil && was.ID == u.ID && u.Step == upgradestate.StepNone {
			o.PredictedPauseMillis, o.PredictedMillis, o.Rollback, o.Proof = was.PredictedPauseMillis, was.PredictedMillis, was.Rollback, was.Proof
			for _, b := range was.Blockers {
				// publish adds the present error itself; an older one must not stay.
				if b.Code != upgradestate.BlockStep {
					o.block(b)
				}
			}
		}
	} else if r.trouble == nil {
		return nil
	}
	return &o
}

// publish shows a readiness report, with the error of the latest pass, if it differs from the
// previous one.
func (r *Driver) publish(ctx context.Context, o *Readiness) {
	if o != nil && r.trouble != nil {
		// Copy, so that the caller's report does not carry the error.
		with := *o
		with.WaitsFor, with.Blockers = slices.Clone(o.WaitsFor), slices.Clone(o.Blockers)
		with.block(upgradestate.Blocker{Code: upgradestate.BlockStep, Text: "a step that is retried: " + r.trouble.Error()})
		o = &with
	}
	if ctx.Err() != nil || r.said && (o == nil) == (r.readiness == nil) && (o == nil || o.same(*r.readiness)) {
		return
	}
	if o != nil {
		said := *o
		said.At = time.Now().UTC().Format(time.RFC3339)
		o = &said
		if len(o.WaitsFor) == 0 {
			// The next reason is news again, even if it equals the last one.
			r.waits.Over()
		} else if r.waits.News(errors.New(strings.Join(o.WaitsFor, "; "))) {
			r.log.Info("the switch waits", zap.String("upgrade", o.ID), zap.Strings("for", o.WaitsFor))
		}
	}
	if r.cfg.Publish != nil {
		if err := r.cfg.Publish(ctx, o); errors.Is(err, ErrNotYet) {
			return
		} else if err != nil {
			r.log.Warn("cannot publish the readiness", zap.Error(err))
			return
		}
	}
	r.readiness, r.said = o, true
}
