package upgradestate

// Action is one thing that a driver should do now. Actions are level-triggered: they
// follow from the record alone, so any driver may take over at any point, and doing one
// twice is harmless.
type Action interface{ action() }

type (
	// Hold asks for the servers' acknowledgements of {ID, Attempt}; with all of them, or
	// after a while without (the fence does not need them), apply Held{ID}.
	Hold struct {
		ID      string
		Attempt uint64
	}

	// Execute is an announced operation: Class on the kind at Place (its name last confirmed; it
	// may bear Pending.To already), towards Pending.To. When it is confirmed at the
	// database, apply Confirmed{Version, Place.Kind, Pending.To, Pending.From}. Class
	// "uuid" is a plain rename by identity, also for a fixed-name kind that is hidden; to
	// its own name it replaces the view that an earlier fence may have left there.
	// Several Executes of one record can be done in parallel.
	Execute struct {
		Version string
		Place   Place
		Class   string // uuid, view, writeBlock, validator
		Restore string
		Pending Pending
		Ends    string // the name or mark of the fence that it ends; empty: none
	}

	// Prevent is an announced rename of a source kind that an abort must not wait for: it
	// has happened, or it is made impossible (record.Fencer.Prevent). Apply Confirmed, as
	// for Execute, or Prevented{Version, Place.Kind, Pending.To}.
	Prevent struct {
		Version string
		Place   Place
		Class   string // uuid
		Pending Pending
	}

	// Unfence gives a fenced kind back to those who write it under its own name: the name
	// (class view), the validator, the cluster. It must have an effect only if From (the
	// present hidden name, or the mark) is still in force, so that one that was sent
	// long ago cannot undo a later fence; a fence that was announced and never sent is
	// removed by doing nothing. When it is confirmed, apply Unfenced{Version, Place.Kind, From}.
	Unfence struct {
		Version string
		Place   Place
		Class   string // view, writeBlock, validator
		Restore string
		From    string // the hidden name or the mark that ends
		To      string // the name afterwards
	}

	// AwaitReports: nothing to do but wait for the reports of Shards.
	AwaitReports struct {
		ID      string
		State   Phase
		Attempt uint64
		Fences  string // what Report.Fences must be; empty in INITIAL_SYNCING
		Shards  []int
	}

	// FinishAbort: apply Aborted{ID}.
	FinishAbort struct{ ID string }
)

func (Hold) action()         {}
func (Execute) action()      {}
func (Prevent) action()      {}
func (Unfence) action()      {}
func (AwaitReports) action() {}
func (FinishAbort) action()  {}

// The events StartSwitch, Drained and Flip are actions too: apply them as they are
// (StartSwitch once lag, verification and parked groups allow it; Flip with the
// measured Switch filled in).
func (StartSwitch) action() {}
func (Drained) action()     {}
func (Flip) action()        {}

// Actions returns what a driver should do now, all of it independent of each other.
// Nothing is returned for a record at rest.
func Actions(d Deployment) []Action {
	u := d.Upgrade
	if u == nil {
		return leftovers(d)
	}
	switch u.Step {
	case StepNone:
		as := leftovers(d)
		switch {
		case ReadyToSwitch(d):
			as = append(as, StartSwitch{ID: u.ID, Attempt: u.Attempt})
		case !AllReady(d):
			as = append(as, AwaitReports{ID: u.ID, State: u.State, Attempt: u.Attempt, Shards: PendingShards(d)})
		}
		return as
	case StepHold:
		return []Action{Hold{ID: u.ID, Attempt: u.Attempt}}
	case StepFence:
		return operations(d, d.CurrentVersion)
	case StepDrain:
		if AllReady(d) {
			return []Action{Drained{ID: u.ID}}
		}
		return []Action{AwaitReports{
			ID: u.ID, State: u.State, Attempt: u.Attempt,
			Fences: FenceNames(d), Shards: PendingShards(d),
		}}
	case StepSealTarget:
		return operations(d, u.TargetVersion)
	case StepSealSource:
		if as := operations(d, d.CurrentVersion); len(as) > 0 {
			return as
		}
		return []Action{Flip{ID: u.ID}}
	case StepAbort:
		// The target's leftovers wait: an abort must not depend on a target that is down.
		if as := operations(d, d.CurrentVersion); len(as) > 0 {
			return as
		}
		return []Action{FinishAbort{ID: u.ID}}
	default:
		return nil
	}
}

// NextFences are the operations that StepFence would have if it began now: what can be made
// ready for them needs not be done while writes are held.
func NextFences(d Deployment) []Execute {
	d = Clone(d)
	var next []Execute
	for _, k := range d.kinds(d.CurrentVersion) {
		k.announce(PendingFence)
	}
	for _, a := range operations(d, d.CurrentVersion) {
		if e, ok := a.(Execute); ok {
			next = append(next, e)
		}
	}
	return next
}

// leftovers are the operations that survive a flip (opening the new namespace) or an abort
// (the target's seals).
func leftovers(d Deployment) []Action {
	var as []Action
	for _, ns := range d.Namespaces {
		as = append(as, operations(d, ns.Version)...)
	}
	return as
}

// operations are the pending operations of one namespace.
func operations(d Deployment, version string) []Action {
	ns, _ := d.Namespace(version)
	var as []Action
	for _, k := range ns.Kinds {
		if k.Pending == nil {
			continue
		}
		p := *k.Pending
		if d.Upgrade != nil && d.Upgrade.Step == StepAbort && version == d.CurrentVersion && k.preventable() {
			as = append(as, Prevent{Version: version, Place: k.place(), Class: k.Fence, Pending: p})
			continue
		}
		if p.Reason == PendingOpen && k.unfenceable() {
			as = append(as, Unfence{
				Version: version, Place: k.place(), Class: k.Fence, Restore: k.Restore,
				From: p.From, To: p.To,
			})
			continue
		}
		as = append(as, Execute{
			Version: version, Place: k.place(), Class: k.operationClass(p.Reason), Restore: k.Restore, Pending: p, Ends: k.ends(p.Reason),
		})
	}
	return as
}
