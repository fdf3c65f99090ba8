package upgradestate

import (
	"cmp"
	"fmt"
	"strings"
)

// Policy decides when an upgrade may switch. The zero value switches as soon as it is ready.
type Policy struct {
	// Hold makes the upgrade stay ready until AskSwitch.
	Hold bool `json:"hold,omitempty"`
	// DeadlineMillis is the maximum duration of SWITCHING before it is aborted; 0: as configured.
	DeadlineMillis int64 `json:"deadlineMillis,omitempty"`
	// MaxPauseMillis is the maximum predicted pause. The switch waits while it is longer. 0: any.
	MaxPauseMillis int64 `json:"maxPauseMillis,omitempty"`
	// MaxHoldMillis is the maximum time that an attempt may hold clients' writes before it releases
	// them; 0: as configured.
	MaxHoldMillis int64 `json:"maxHoldMillis,omitempty"`
	// Retries is the number of automatic retries after an attempt failed by its deadline or a
	// failover; 0: as configured, -1: none.
	Retries int `json:"retries,omitempty"`
}

// SetPolicy changes the policy of the running upgrade before SWITCHING. A nil field keeps its value.
// ID "" selects the running upgrade.
type SetPolicy struct {
	ID                                            string
	Hold                                          *bool
	DeadlineMillis, MaxPauseMillis, MaxHoldMillis *int64
	Retries                                       *int
}

// Or returns the policy with the values of defaults in place of its zero fields.
func (p Policy) Or(defaults Policy) Policy {
	return Policy{
		Hold:           p.Hold || defaults.Hold,
		DeadlineMillis: cmp.Or(p.DeadlineMillis, defaults.DeadlineMillis),
		MaxPauseMillis: cmp.Or(p.MaxPauseMillis, defaults.MaxPauseMillis),
		MaxHoldMillis:  cmp.Or(p.MaxHoldMillis, defaults.MaxHoldMillis),
		Retries:        cmp.Or(p.Retries, defaults.Retries),
	}
}

// mayRetry reports whether another attempt is allowed after a number of earlier failures, not
// counting the attempt that ends.
func (p Policy) mayRetry(failures int) bool {
	return p.Retries == 0 || failures < p.Retries
}

// String describes the policy for an operator.
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

// Bounds of a deadline. A shorter one would abort every switch.
const (
	minDeadlineMillis = 1_000
	maxDeadlineMillis = 600_000
)

// MaxRetries bounds Policy.Retries: a switch that fails so often does not succeed by itself.
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

// SwitchBlocker returns the text of the first of SwitchBlockers, or "".
func SwitchBlocker(d Deployment) string {
	if all := SwitchBlockers(d); len(all) > 0 {
		return all[0].Text
	}
	return ""
}

// SwitchBlockers returns all reasons in the record that prevent a running upgrade with ready shards
// from switching.
func SwitchBlockers(d Deployment) (all []Blocker) {
	u := d.Upgrade
	if u == nil {
		return nil
	}
	add := func(code BlockCode, at BlockPlace, format string, args ...any) {
		all = append(all, Blocker{Code: code, Place: at, Text: fmt.Sprintf(format, args...)})
	}
	// A snapshot is not in sync anyway, so differences do not matter to it.
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
	// A switch to the snapshot is one way to decide about a restore.
	if line := RestoredLine(d); line != "" && !u.Snapshot {
		add(BlockRestored, BlockPlace{Version: d.CurrentVersion}, "%s", line)
	}
	for _, ns := range d.Namespaces {
		// A switch to the snapshot is the way out when databases are lost. It must not wait for a
		// third one: its operations stay announced, and block later upgrades.
		if u.Snapshot && ns.Version != d.CurrentVersion && ns.Version != u.TargetVersion {
			continue
		}
		for _, k := range ns.Kinds {
			if k.Pending != nil {
				add(BlockPending, BlockPlace{Version: ns.Version, Kind: k.Kind}, "an earlier operation on %s of %s (%s to %s), until a controller completes it",
					k.Kind, ns.Version, k.Pending.From, k.Pending.To)
				return all // one is enough for people: there may be a thousand kinds
			}
		}
	}
	return all
}

// mayBegin refuses an upgrade that the state of the deployment does not allow now.
func (d *Deployment) mayBegin(e Begin) error {
	if err := e.Policy.validate(); err != nil {
		return refused("begin-upgrade: %v", err)
	}
	if r := d.Retire; r != nil {
		return refused("begin-upgrade: %s is being retired: wait until it ends", r.Version)
	}
	if d.isRetired(e.TargetVersion) {
		return refused("begin-upgrade: %s was retired, so no upgrade can return to it", e.TargetVersion)
	}
	// The copy would overwrite changes that the restore has undone and only the target still has.
	if line := RestoredLine(*d); line != "" && !e.Snapshot {
		return refused("begin-upgrade: the deployment waits for %s", line)
	}
	// An operator may decide for the version that followed a restored one.
	if e.Snapshot && d.keeps(e.TargetVersion) {
		return nil
	}
	if last := d.LastSwitch; e.Snapshot && (last == nil || last.From != e.TargetVersion || last.To != d.CurrentVersion || last.Back) {
		return refused("begin-upgrade: no snapshot of %s: only the version before the latest switch has one", e.TargetVersion)
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
	// A repeated request is fine even during a switch.
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
	// A switch in progress keeps the policy that it began with.
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource, StepAbort:
		return refused("set-policy: upgrade %s is switching already: let it finish or abort it", u.ID)
	default:
		return refused("set-policy: unknown step %q", u.Step)
	}
}

func (d *Deployment) askSwitch(e AskSwitch) error {
	u := d.Upgrade
	// A late repetition after the flip.
	if last := d.LastSwitch; u == nil && last != nil && e.ID != "" && e.ID == last.ID {
		return nil
	}
	if u == nil || e.ID != "" && e.ID != u.ID {
		return refused("switch: no such upgrade is running: begin one")
	}
	switch u.Step {
	// It is remembered if the shards are not ready yet.
	case StepNone:
		u.SwitchAsked = true
		return nil
	case StepHold, StepFence, StepDrain, StepSealTarget, StepSealSource:
		return nil // it is under way
	case StepAbort:
		return refused("switch: upgrade %s is being aborted (%s): wait until it ends, then begin again", u.ID, u.AbortReason)
	default:
		return refused("switch: unknown step %q", u.Step)
	}
}

// set assigns a value unless it is nil.
func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}
