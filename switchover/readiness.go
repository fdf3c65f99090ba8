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

// Readiness is what stands between an upgrade and its switch. It is for people: nothing is
// decided on it.
type Readiness struct {
	ID       string   `json:"id"`                 // of the upgrade
	WaitsFor []string `json:"waitsFor,omitempty"` // texts of Blockers; empty: nothing
	// Blockers are the reasons with their codes. A driver from before them publishes WaitsFor alone.
	Blockers []upgradestate.Blocker `json:"blockers,omitempty"`
	// PredictedPauseMillis is how long writes will be held; nil: not known yet.
	PredictedPauseMillis *int64 `json:"predictedPauseMillis,omitempty"`
	Rollback             string `json:"rollback,omitempty"` // whether there will be one, and how that is known
	Proof                Proof  `json:"proof,omitempty"`    // the same in one word
	At                   string `json:"at,omitempty"`       // RFC 3339, when it last changed
}

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

// blockErr adds an error as a reason: under code, and in the database of version, unless it has
// a code and a place of its own.
func (o *Readiness) blockErr(code upgradestate.BlockCode, version string, err error) {
	b := upgradestate.BlockerOf(code, err)
	if b.Place.Version == "" {
		b.Place.Version = version
	}
	o.block(b)
}

// texts are reasons in words.
func texts(all []upgradestate.Blocker) (out []string) {
	for _, b := range all {
		out = append(out, b.Text)
	}
	return out
}

// Proof is what is known of the rollback of an upgrade before its switch.
type Proof string

const (
	ProofNotAsked Proof = "not_asked" // it goes back itself, or to a snapshot
	ProofDisabled Proof = "disabled"  // there will be no rollback but to the snapshot
	ProofRunning  Proof = "running"   // or not begun
	ProofFailed   Proof = "failed"    // and is tried again
	ProofProved   Proof = "proved"
)

// ProofStates are all that a Proof may be, where one is known.
var ProofStates = []Proof{ProofNotAsked, ProofDisabled, ProofRunning, ProofFailed, ProofProved}

// Forecast is what is known of a switch before it begins.
type Forecast struct {
	Rollback string
	Proof    Proof
	// Parts are the expected durations of the parts of the pause, by the names of
	// upgradestate.Switch.Millis; nil: nothing was measured yet.
	Parts map[string]time.Duration
}

// Forecaster looks ahead at the switch of the upgrade that runs.
type Forecaster interface {
	Forecast(ctx context.Context, d upgradestate.Deployment) Forecast
}

// Publisher shows a readiness report to people; nil takes it away.
type Publisher func(ctx context.Context, o *Readiness) error

// ErrNotYet is what a Publisher returns as long as it has nothing to publish under, as when
// its process has just started: the report comes with a later pass, and nothing is wrong.
var ErrNotYet = errors.New("not yet")

// pauseStep is what predictions are rounded up to, so that they do not change all the time.
const pauseStep = 10 * time.Millisecond

// Predict adds up the parts of the pause: each as measured now, or as in the latest switch
// where that took longer. ok is false when nothing is known.
func Predict(parts map[string]time.Duration, last *upgradestate.Switch) (total time.Duration, ok bool) {
	worst := maps.Clone(parts)
	if worst == nil {
		worst = map[string]time.Duration{}
	}
	if last != nil {
		for part, ms := range last.Millis {
			worst[part] = max(worst[part], time.Duration(ms)*time.Millisecond)
		}
	}
	for _, d := range worst {
		total += d
	}
	if rest := total % pauseStep; rest > 0 {
		total += pauseStep - rest
	}
	return total, len(worst) > 0
}

// checkReadiness finds out what stands between an upgrade that has not begun to switch and its
// switch, and publishes it. What it returns in WaitsFor keeps the switch from beginning.
func (r *Driver) checkReadiness(ctx context.Context, d upgradestate.Deployment) Readiness {
	u := d.Upgrade
	o := Readiness{ID: u.ID}
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
	switch n, err := r.parked(ctx, d); {
	case err != nil:
		waitFor(upgradestate.BlockUncounted, "parked groups cannot be counted: %v", err)
	case n > 0:
		waitFor(upgradestate.BlockParked, "%d parked groups: see 'parked', correct them at the source or waive them", n)
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
			o.PredictedPauseMillis = &ms
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
	// The databases are asked once the shards are there: until then the collections are
	// still being made and filled.
	if upgradestate.AllReady(d) {
		found, err := r.hindrances(ctx, d)
		if err != nil {
			o.blockErr(upgradestate.BlockUnanswered, "", fmt.Errorf("an answer of the databases, whether something would hold up the switch: %w", err))
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

// parked counts the groups that the switch would leave behind without anybody having
// accepted it: a rollback to the snapshot has accepted it for all.
func (r *Driver) parked(ctx context.Context, d upgradestate.Deployment) (int, error) {
	if d.Upgrade.Snapshot {
		return 0, nil
	}
	return r.deployments.Parked(ctx)
}

// publishTrouble shows why a step of a switch, or what is left to do before or after one, does
// not succeed, next to what was found before.
func (r *Driver) publishTrouble(ctx context.Context, d upgradestate.Deployment, err error) {
	r.trouble = err
	r.publish(ctx, r.report(d))
}

// troubleOver takes back what publishTrouble has shown.
func (r *Driver) troubleOver(ctx context.Context, d upgradestate.Deployment) {
	if r.trouble == nil {
		return
	}
	if r.trouble = nil; r.readiness != nil {
		r.publish(ctx, r.report(d))
	}
}

// report is what the latest look has found about what the record asks for now, without trouble.
func (r *Driver) report(d upgradestate.Deployment) *Readiness {
	o := Readiness{}
	if u := d.Upgrade; u != nil {
		o.ID = u.ID
		if was := r.readiness; was != nil && was.ID == u.ID && u.Step == upgradestate.StepNone {
			o.PredictedPauseMillis, o.Rollback, o.Proof = was.PredictedPauseMillis, was.Rollback, was.Proof
			for _, b := range was.Blockers {
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

// publish shows a readiness report, with the trouble of the latest pass, if it differs from the
// one before.
func (r *Driver) publish(ctx context.Context, o *Readiness) {
	if o != nil && r.trouble != nil {
		with := *o
		with.WaitsFor, with.Blockers = slices.Clone(o.WaitsFor), slices.Clone(o.Blockers)
		with.block(upgradestate.Blocker{Code: upgradestate.BlockStep, Text: "a step that is tried again: " + r.trouble.Error()})
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
			r.waits.Over()
		} else if r.waits.News(errors.New(strings.Join(o.WaitsFor, "; "))) {
			r.log.Info("switch waits", zap.String("upgrade", o.ID), zap.Strings("for", o.WaitsFor))
		}
	}
	if r.cfg.Publish != nil {
		if err := r.cfg.Publish(ctx, o); errors.Is(err, ErrNotYet) {
			return
		} else if err != nil {
			r.log.Warn("readiness is not published", zap.Error(err))
			return
		}
	}
	r.readiness, r.said = o, true
}
