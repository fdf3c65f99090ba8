package upgradestate

import (
	"errors"
	"fmt"
	"slices"

	"dbcontroller.dev/internal/base/limits"
)

// Validate checks the invariants of every record, whichever binary wrote it. A process must not act
// on a record that fails.
func Validate(d Deployment) error {
	switch {
	case d.Format > Format:
		return fmt.Errorf("record format %d is newer than %d: use a newer binary", d.Format, Format)
	case d.Format < 1:
		return fmt.Errorf("record format %d: this is no deployment", d.Format)
	case d.Name == "":
		return errors.New("the name is empty")
	case d.CurrentVersion == "":
		return errors.New("the current version is empty")
	case d.Epoch < 1:
		return errors.New("the epoch is 0")
	case d.RingSize < 1:
		return fmt.Errorf("ring size %d is less than 1", d.RingSize)
	case d.RingSize > limits.RingSize:
		return fmt.Errorf("ring size %d is more than %d", d.RingSize, limits.RingSize)
	case len(d.CurrentVersion) > limits.VersionBytes:
		return fmt.Errorf("the current version has more than %d bytes", limits.VersionBytes)
	}
	versions := map[string]bool{}
	for _, ns := range d.Namespaces {
		if ns.Version == "" || versions[ns.Version] {
			return fmt.Errorf("namespace version %q is empty or occurs twice", ns.Version)
		}
		versions[ns.Version] = true
		kinds := map[string]bool{}
		for _, k := range ns.Kinds {
			if kinds[k.Kind] {
				return fmt.Errorf("%s: kind %s occurs twice", ns.Version, k.Kind)
			}
			kinds[k.Kind] = true
			if err := validateKind(k); err != nil {
				return fmt.Errorf("%s: kind %q: %w", ns.Version, k.Kind, err)
			}
			if err := validatePlace(d, ns.Version, k); err != nil {
				return fmt.Errorf("%s: kind %q: %w", ns.Version, k.Kind, err)
			}
		}
	}
	if d.Upgrade != nil {
		if err := validateUpgrade(d); err != nil {
			return fmt.Errorf("upgrade %s: %w", d.Upgrade.ID, err)
		}
	}
	if err := d.Pace.validate(); err != nil {
		return fmt.Errorf("pace: %w", err)
	}
	if err := validateRetire(d); err != nil {
		return err
	}
	return validateUpdate(d)
}

// validateKind checks a kind by itself.
func validateKind(k Kind) error {
	switch {
	case k.Kind == "":
		return errors.New("the name is empty")
	case k.Physical == "":
		return errors.New("the physical name is empty")
	// Clients would miss the kind, or find a target that is not theirs yet.
	case k.Hidden != (k.Fixed && k.Physical != k.Kind):
		return fmt.Errorf("hidden is %t, but its collection has the name %s", k.Hidden, k.Physical)
	}
	switch k.Fence {
	case classUUID:
		// Only clients that send the identity are refused after a rename.
		if k.Fixed {
			return errors.New("a fixed-name kind cannot be fenced by uuid: its application does not send it")
		}
	case classView, classRole, classWriteBlock:
		if !k.Fixed {
			return fmt.Errorf("a managed kind cannot be fenced by %s", k.Fence)
		}
	case classValidator:
	default:
		return fmt.Errorf("unknown fence class %q", k.Fence)
	}
	names := []string{k.Physical, k.Fenced}
	// An operation from another name would find nothing, and its confirmation would be false.
	if p := k.Pending; p != nil {
		names = append(names, p.From, p.To)
		from := k.Physical
		switch p.Reason {
		case PendingFence, PendingSeal, PendingLast:
			if _, ok := seqOf(k.Kind, p.To); !ok {
				return fmt.Errorf("pending %s to %q, which is not the next name", p.Reason, p.To)
			}
		case PendingOpen:
			if !k.Hidden {
				from = k.Fenced
			}
			if k.Fence == classUUID || !k.Hidden && k.Fenced == "" {
				return errors.New("pending open, but nothing is closed")
			}
		default:
			return fmt.Errorf("unknown pending reason %q", p.Reason)
		}
		if p.From != from {
			return fmt.Errorf("pending %s from %q, but it is at %q", p.Reason, p.From, from)
		}
	}
	// A number in use must not be announced again.
	for _, n := range names {
		if seq, ok := seqOf(k.Kind, n); ok && seq >= k.NextSeq {
			return fmt.Errorf("name %s is in use, but nextSeq is %d", n, k.NextSeq)
		}
	}
	return nil
}

// validatePlace checks a kind against the step of the upgrade.
func validatePlace(d Deployment, version string, k Kind) error {
	step, apart := StepNone, false
	if u := d.Upgrade; u != nil {
		// A switch to the snapshot does not touch a third namespace, and does not wait for it.
		step, apart = u.Step, u.Snapshot && version != u.TargetVersion
	}
	// Of the other namespaces only seals may be pending, and none while the source is worked on.
	if version != d.CurrentVersion {
		switch {
		case k.Pending == nil:
		case k.Pending.Reason != PendingSeal:
			return fmt.Errorf("pending %s on a namespace that is not current", k.Pending.Reason)
		case apart:
		case step == StepHold || step == StepFence || step == StepDrain || step == StepSealSource:
			return fmt.Errorf("pending %s in step %s", k.Pending.Reason, step)
		}
		return nil
	}
	var allowed []PendingReason
	switch step {
	case StepNone:
		allowed = []PendingReason{PendingOpen}
		// Clients could never write again.
		if k.Sealed || (k.Fenced != "" || k.Hidden) && k.Pending == nil {
			return errors.New("the current version is closed and no pending operation opens it")
		}
	case StepHold:
		if k.Sealed || k.Fenced != "" || k.Hidden {
			return errors.New("it is fenced already in step HOLD")
		}
	// A source kind without a fence would go on accepting writes during the drain.
	case StepFence:
		allowed = []PendingReason{PendingFence}
		if k.Pending == nil && k.Fenced == "" {
			return errors.New("neither fenced nor to be fenced in step FENCE")
		}
	case StepDrain, StepSealTarget:
		if k.Fenced == "" {
			return fmt.Errorf("not fenced in step %s", step)
		}
	case StepSealSource:
		allowed = []PendingReason{PendingLast}
		if k.Fenced == "" || k.Fence == classUUID && !k.Sealed && k.Pending == nil {
			return errors.New("not fenced and sealed, nor going to be, in step SEAL_SOURCE")
		}
	case StepAbort:
		allowed = []PendingReason{PendingFence, PendingLast, PendingOpen}
	default:
		return fmt.Errorf("unknown step %q", step)
	}
	if k.Pending != nil && !slices.Contains(allowed, k.Pending.Reason) {
		return fmt.Errorf("pending %s in step %q", k.Pending.Reason, step)
	}
	return nil
}

func validateUpgrade(d Deployment) error {
	u := d.Upgrade
	switch {
	case u.ID == "":
		return errors.New("the id is empty")
	case u.TargetVersion == d.CurrentVersion:
		return fmt.Errorf("the target %s is the current version", u.TargetVersion)
	case u.Attempt < 1:
		return errors.New("the attempt is 0")
	}
	if err := u.Policy.validate(); err != nil {
		return err
	}
	for _, v := range []string{d.CurrentVersion, u.TargetVersion} {
		if ns, ok := d.Namespace(v); !ok || len(ns.Kinds) == 0 {
			return fmt.Errorf("version %s has no kinds", v)
		}
	}
	// Ordered and unique, so that equal states are equal records.
	for i, s := range u.ReadyShards {
		if s < 0 || s >= d.RingSize || i > 0 && u.ReadyShards[i-1] >= s {
			return fmt.Errorf("ready shards %v are not an ordered part of the ring of %d", u.ReadyShards, d.RingSize)
		}
	}
	switch u.State {
	case InitialSyncing:
		if u.Step != StepNone {
			return fmt.Errorf("step %s in %s", u.Step, u.State)
		}
	case Switching:
		switch u.Step { //nolint:exhaustive // StepNone is refused by the default
		case StepDrain:
		// These steps follow from the reports of all shards.
		case StepSealTarget, StepSealSource:
			if !AllReady(d) {
				return fmt.Errorf("shards %v are pending in step %s", PendingShards(d), u.Step)
			}
		// A report before the fences would count as drained.
		case StepHold, StepFence, StepAbort:
			if len(u.ReadyShards) > 0 {
				return fmt.Errorf("shards %v are ready in step %s", u.ReadyShards, u.Step)
			}
		default:
			return fmt.Errorf("step %q in %s", u.Step, u.State)
		}
	default:
		return fmt.Errorf("unknown state %q", u.State)
	}
	return nil
}
