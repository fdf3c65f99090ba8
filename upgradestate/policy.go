package upgradestate

import (
	"fmt"
	"strings"
)

// Policy is when an upgrade may switch. The zero value: at once when it is ready.
type Policy struct {
	// Hold: stay ready until AskSwitch.
	Hold bool `json:"hold,omitempty"`
	// DeadlineMillis is how long SWITCHING may take before it is aborted; 0: as the
	// controllers are configured.
	DeadlineMillis int64 `json:"deadlineMillis,omitempty"`
	// MaxPauseMillis is the predicted pause above which the switch waits; 0: any.
	MaxPauseMillis int64 `json:"maxPauseMillis,omitempty"`
	// MaxHoldMillis is how long an attempt at the switch may hold clients' writes before it
	// gives them back; 0: as the controllers are configured.
	MaxHoldMillis int64 `json:"maxHoldMillis,omitempty"`
	// Retries is how often the switch is tried again by itself after an attempt was given
	// up by its deadline or by a failover; 0: as the controllers are configured, -1: never.
	Retries int `json:"retries,omitempty"`
}

// mayRetry reports whether one more attempt is allowed after so many were given up before
// the one that ends.
func (p Policy) mayRetry(failures int) bool {
	return p.Retries == 0 || failures < p.Retries
}

// String is the policy as an operator reads it.
func (p Policy) String() string {
	parts := []string{"switch when ready"}
	if p.Hold {
		parts[0] = "hold at ready"
	}
	if p.DeadlineMillis > 0 {
		parts = append(parts, fmt.Sprintf("deadline %d ms", p.DeadlineMillis))
	}
	if p.MaxPauseMillis > 0 {
		parts = append(parts, fmt.Sprintf("pause at most %d ms", p.MaxPauseMillis))
	}
	if p.MaxHoldMillis > 0 {
		parts = append(parts, fmt.Sprintf("writes held at most %d ms", p.MaxHoldMillis))
	}
	switch {
	case p.Retries < 0:
		parts = append(parts, "no second attempt")
	case p.Retries > 0:
		parts = append(parts, fmt.Sprintf("at most %d more attempts", p.Retries))
	}
	return strings.Join(parts, ", ")
}

// Bounds of a deadline. One below the least would abort every switch.
const (
	minDeadlineMillis = 1_000
	maxDeadlineMillis = 600_000
)

// MaxRetries bounds Policy.Retries: what fails that often does not pass by itself.
const MaxRetries = 100

func (p Policy) validate() error {
	switch {
	case p.DeadlineMillis != 0 && (p.DeadlineMillis < minDeadlineMillis || p.DeadlineMillis > maxDeadlineMillis):
		return fmt.Errorf("a deadline of %d ms is not within %d to %d", p.DeadlineMillis, minDeadlineMillis, maxDeadlineMillis)
	case p.MaxHoldMillis != 0 && (p.MaxHoldMillis < minDeadlineMillis || p.MaxHoldMillis > maxDeadlineMillis):
		return fmt.Errorf("holding writes for at most %d ms is not within %d to %d", p.MaxHoldMillis, minDeadlineMillis, maxDeadlineMillis)
	case p.Retries < -1 || p.Retries > MaxRetries:
		return fmt.Errorf("%d more attempts are not within -1 (none) to %d", p.Retries, MaxRetries)
	case p.MaxPauseMillis < 0:
		return fmt.Errorf("a pause of at most %d ms is negative", p.MaxPauseMillis)
	}
	return nil
}

func snapshotName(snapshot bool) string {
	if snapshot {
		return "to the snapshot"
	}
	return "with sync"
}

// SwitchBlocker returns the text of the first of SwitchBlockers; "" is nothing.
func SwitchBlocker(d Deployment) string {
	if all := SwitchBlockers(d); len(all) > 0 {
		return all[0].Text
	}
	return ""
}

// SwitchBlockers returns everything in the record that keeps a running upgrade, all of whose
// shards are ready, from switching.
func SwitchBlockers(d Deployment) (all []Blocker) {
	u := d.Upgrade
	if u == nil {
		return nil
	}
	add := func(code BlockCode, at BlockPlace, format string, args ...any) {
		all = append(all, Blocker{Code: code, Place: at, Text: fmt.Sprintf(format, args...)})
	}
	if line := DifferentLine(d); line != "" && !u.Snapshot {
		add(BlockDifferent, BlockPlace{Version: d.Different.Version}, "%s", line)
	}
	if d.Pace.Paused {
		add(BlockPaused, BlockPlace{}, "'resume': %s", d.Pace.pauseReason())
	}
	if u.Policy.Hold && !u.SwitchAsked {
		add(BlockHeld, BlockPlace{}, "'switch': this upgrade holds at ready")
	}
	if d.Update != nil {
		add(BlockUpdate, BlockPlace{Version: d.Update.Version, Kind: d.Update.Kind}, "the end of data update %s: let it finish or cancel it", d.Update.Name)
	}
	if line := RestoredLine(d); line != "" && !u.Snapshot {
		add(BlockRestored, BlockPlace{Version: d.CurrentVersion}, "%s", line)
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			if k.Pending != nil {
				add(BlockPending, BlockPlace{Version: ns.Version, Kind: k.Kind}, "an earlier operation on %s of %s (%s to %s), which a controller has to complete",
					k.Kind, ns.Version, k.Pending.From, k.Pending.To)
				return all // one is enough for people: a thousand kinds can have one each
			}
		}
	}
	return all
}

// mayBegin refuses an upgrade that the life of the deployment does not allow now.
func (d *Deployment) mayBegin(e Begin) error {
	if err := e.Policy.validate(); err != nil {
		return refused("begin-upgrade: %v", err)
	}
	if r := d.Retire; r != nil {
		return refused("begin-upgrade: %s is being retired: wait for its end", r.Version)
	}
	if d.isRetired(e.TargetVersion) {
		return refused("begin-upgrade: %s was retired, and nothing leads back to it", e.TargetVersion)
	}
	if line := RestoredLine(*d); line != "" && !e.Snapshot {
		return refused("begin-upgrade: it waits for %s", line)
	}
	if e.Snapshot && d.keeps(e.TargetVersion) {
		return nil
	}
	if last := d.LastSwitch; e.Snapshot && (last == nil || last.From != e.TargetVersion || last.To != d.CurrentVersion || last.Back) {
		return refused("begin-upgrade: no snapshot of %s: only the version that the latest switch came from has one", e.TargetVersion)
	}
	return nil
}

func (d *Deployment) setPolicy(e SetPolicy) error {
	u := d.Upgrade
	if u == nil || e.ID != "" && e.ID != u.ID {
		return refused("set-policy: no such upgrade is running")
	}
	next := u.Policy
	set(&next.Hold, e.Hold)
	set(&next.DeadlineMillis, e.DeadlineMillis)
	set(&next.MaxPauseMillis, e.MaxPauseMillis)
	set(&next.MaxHoldMillis, e.MaxHoldMillis)
	set(&next.Retries, e.Retries)
	if next == u.Policy {
		return nil
	}
	if err := next.validate(); err != nil {
		return refused("set-policy: %v", err)
	}
	switch u.Step {
	case StepNone:
		u.Policy = next
		return nil
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource, StepAbort:
		return refused("set-policy: upgrade %s is switching already: let it finish or abort it", u.ID)
	default:
		return refused("set-policy: unknown step %q", u.Step)
	}
}

func (d *Deployment) askSwitch(e AskSwitch) error {
	u := d.Upgrade
	if last := d.LastSwitch; u == nil && last != nil && e.ID != "" && e.ID == last.ID {
		return nil
	}
	if u == nil || e.ID != "" && e.ID != u.ID {
		return refused("switch: no such upgrade is running: begin one")
	}
	switch u.Step {
	case StepNone:
		u.SwitchAsked = true
		return nil
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
		return nil // it is under way
	case StepAbort:
		return refused("switch: upgrade %s is being aborted (%s): wait for its end, then begin again", u.ID, u.AbortReason)
	default:
		return refused("switch: unknown step %q", u.Step)
	}
}

// set takes a value that is given.
func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}
