package upgradestate

// Action is one task for a driver. Actions follow from the record alone, so any driver may take
// over at any point. Executing one twice is harmless.
type Action interface{ action() }

type (
	// Hold asks for the servers' acknowledgements of {ID, Attempt}. After all of them, or after a
	// timeout (the fence does not need them), the driver applies Held{ID, Attempt}.
	Hold struct {
		ID      string
		Attempt uint64
	}

	// Execute asks for an announced operation: Class on the kind at Place, towards Pending.To.
	// Place has the last confirmed name. The kind may have Pending.To already. After the database
	// confirms it, the driver applies Confirmed{Version, Place.Kind, Pending.To, Pending.From}.
	// Class "uuid" is a plain rename by identity, also for a hidden fixed-name kind. A rename to
	// the kind's own name replaces a view that an earlier fence may have left there. Several
	// Executes of one record may run in parallel.
	Execute struct {
		Version string
		Place   Place
		Class   string // uuid, view, role, writeBlock, validator
		Restore string
		Pending Pending
		Ends    string // name or mark of the fence that it ends; "" for none
	}

	// Prevent asks to resolve an announced rename of a source kind that an abort must not wait for:
	// the rename has happened, or the driver makes it impossible (record.Fencer.Prevent). The
	// driver then applies Confirmed, as for Execute, or Prevented{Version, Place.Kind, Pending.To}.
	Prevent struct {
		Version string
		Place   Place
		Class   string // uuid
		Pending Pending
	}

	// Unfence asks to give a fenced kind back to the clients that write it under its own name: it
	// restores the name (class view), the validator or the cluster. It must act only if From (the
	// present hidden name, or the mark) is still in force. So a late Unfence cannot undo a later
	// fence. A fence that was announced and never sent needs no action. After confirmation the
	// driver applies Unfenced{Version, Place.Kind, From}.
	Unfence struct {
		Version string
		Place   Place
		Class   string // view, writeBlock, validator
		Restore string
		From    string // the hidden name or the mark that ends
		To      string // the name afterwards
		Ends    string // fence whose appliers the opening must stop; "" if a seal has done so
	}

	// AwaitReports asks to wait for the reports of Shards.
	AwaitReports struct {
		ID      string
		State   Phase
		Attempt uint64
		Fences  string // required Report.Fences; empty in INITIAL_SYNCING
		Shards  []int
	}

	// FinishAbort asks to apply Aborted{ID, Attempt}.
	FinishAbort struct {
		ID      string
		Attempt uint64
	}
)

func (Hold) action()         {}
func (Execute) action()      {}
func (Prevent) action()      {}
func (Unfence) action()      {}
func (AwaitReports) action() {}
func (FinishAbort) action()  {}

// The events StartSwitch, Drained and Flip are also actions, to be applied as they are: StartSwitch
// once lag, verification and parked groups allow it, Flip with the measured Switch filled in.
func (StartSwitch) action() {}
func (Drained) action()     {}
func (Flip) action()        {}

// Actions returns the tasks of a driver for a record, independent of each other. A record at rest
// has none.
func Actions(d Deployment) []Action {
	u := d.Upgrade
	if u == nil {
		return leftovers(d)
	}
	switch u.Step {
	case StepNone:
		// Seals from an earlier attempt have to end before the next switch.
		as := leftovers(d)
		switch {
		case ReadyToSwitch(d):
			as = append(as, StartSwitch{ID: u.ID, Attempt: u.Attempt})
		// An upgrade that is ready and blocked has no action until the record changes.
		case !AllReady(d):
			as = append(as, AwaitReports{ID: u.ID, State: u.State, Attempt: u.Attempt, Shards: PendingShards(d)})
		}
		return as
	case StepHold:
		return []Action{Hold{ID: u.ID, Attempt: u.Attempt}}
	case StepFence:
		return operations(d, d.CurrentVersion)
	case StepDrain:
		// The reports are bound to the fences in force, so nothing more has to be checked here.
		if AllReady(d) {
			return []Action{Drained{ID: u.ID, Attempt: u.Attempt}}
		}
		return []Action{AwaitReports{
			ID: u.ID, State: u.State, Attempt: u.Attempt,
			Fences: FenceNames(d), Shards: PendingShards(d),
		}}
	case StepSealTarget:
		return operations(d, u.TargetVersion)
	case StepSealSource:
		// The flip waits for the last renames, or a stale reader could read old data after it.
		if as := operations(d, d.CurrentVersion); len(as) > 0 {
			return as
		}
		return []Action{Flip{ID: u.ID, Attempt: u.Attempt}}
	case StepAbort:
		// The target's operations wait: an abort must not depend on a target that is down.
		if as := operations(d, d.CurrentVersion); len(as) > 0 {
			return as
		}
		return []Action{FinishAbort{ID: u.ID, Attempt: u.Attempt}}
	default:
		return nil
	}
}

// NextFences returns the operations that StepFence would have if it started now. Drivers prepare
// them before clients' writes are held.
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

// leftovers returns the operations that survive a flip (opening the new namespace) or an abort
// (seals of the target).
func leftovers(d Deployment) []Action {
	var as []Action
	for _, ns := range d.Namespaces {
		as = append(as, operations(d, ns.Version)...)
	}
	return as
}

// operations returns the pending operations of one namespace.
func operations(d Deployment, version string) []Action {
	ns, _ := d.Namespace(version)
	var as []Action
	for _, k := range ns.Kinds {
		if k.Pending == nil {
			continue
		}
		p := *k.Pending
		// An abort does not wait for a rename of the source. It makes the rename impossible.
		if d.Upgrade != nil && d.Upgrade.Step == StepAbort && version == d.CurrentVersion && k.preventable() {
			as = append(as, Prevent{Version: version, Place: k.place(), Class: k.Fence, Pending: p})
			continue
		}
		// The fence is still where it was set, so its removal opens the kind.
		if p.Reason == PendingOpen && k.unfenceable() {
			as = append(as, Unfence{
				Version: version, Place: k.place(), Class: k.Fence, Restore: k.Restore,
				From: p.From, To: p.To, Ends: d.endsOf(p),
			})
			continue
		}
		as = append(as, Execute{
			Version: version, Place: k.place(), Class: k.operationClass(p.Reason), Restore: k.Restore, Pending: p, Ends: k.ends(p.Reason),
		})
	}
	return as
}

// endsOf returns the fence whose appliers the opening of a kind must also stop, or "". After a flip
// the seal has stopped them, and appliers know no fence that an abort removes. A recovered record
// has no seal: the mark that the kind opens from is the one that appliers had.
func (d *Deployment) endsOf(p Pending) string {
	if d.LastSwitch != nil && d.LastSwitch.Outdated {
		return p.From
	}
	return ""
}
