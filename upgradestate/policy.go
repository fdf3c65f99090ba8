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
	return strings.Join(parts, ", ")
}

// Bounds of a deadline. One below the least would abort every switch.
const (
	minDeadlineMillis = 1_000
	maxDeadlineMillis = 600_000
)

func (p Policy) validate() error {
	switch {
	case p.DeadlineMillis != 0 && (p.DeadlineMillis < minDeadlineMillis || p.DeadlineMillis > maxDeadlineMillis):
		return fmt.Errorf("a deadline of %d ms is not within %d to %d", p.DeadlineMillis, minDeadlineMillis, maxDeadlineMillis)
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

// HoldsBack says what in the record keeps a running upgrade, all of whose shards are
// ready, from switching; "" is nothing.
func HoldsBack(d Deployment) string {
	u := d.Upgrade
	switch {
	case u == nil:
		return ""
	case d.Pace.Paused:
		return "'resume': " + d.Pace.pauseReason()
	case u.Policy.Hold && !u.SwitchAsked:
		return "'switch': this upgrade holds at ready"
	case d.Update != nil:
		return fmt.Sprintf("the end of data update %s: let it finish or cancel it", d.Update.Name)
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			if k.Pending != nil {
				return fmt.Sprintf("an earlier act on %s of %s (%s to %s), which a controller has to complete",
					k.Kind, ns.Version, k.Pending.From, k.Pending.To)
			}
		}
	}
	return ""
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
		return refused("begin-upgrade: %s was retired, and its data are gone", e.TargetVersion)
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
