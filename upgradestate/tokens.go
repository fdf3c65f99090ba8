package upgradestate

// Place is the physical place of a kind. Several places of one kind are candidates: its present
// name and the announced next one. The identity decides between them.
type Place struct {
	Kind  string
	Name  string
	ID    string
	Fixed bool
}

// WritePlaces returns the version whose stack serves, and one place for writes to each of its
// kinds. Without places, writes must be held: in SWITCHING, and after a flip until every kind of
// the new namespace is open.
func WritePlaces(d Deployment) (version string, places []Place) {
	version = d.CurrentVersion
	if switching(d) {
		return version, nil
	}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		// All kinds or none, since one write of a client may touch several.
		if k.Pending != nil || k.Sealed || k.Hidden || k.Fenced != "" {
			return version, nil
		}
		places = append(places, k.place())
	}
	return version, places
}

// ReadPlaces returns the places where a client of a version can read each kind: its present name
// and the announced next one. A missing kind cannot be read now. Wait for the next record. The name
// of a last rename is never published, and only the current version can be read. So no client reads
// old data after a flip.
func ReadPlaces(d Deployment, version string) map[string][]Place {
	places := map[string][]Place{}
	if version != d.CurrentVersion {
		return places
	}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if k.Sealed {
			continue
		}
		places[k.Kind] = k.candidates(func(r PendingReason) bool { return r != PendingLast })
	}
	return places
}

// EnginePlaces returns the places where a controller finds each kind of any version, in any state.
// ApplyAllowed decides whether it may write there.
func EnginePlaces(d Deployment, version string) map[string][]Place {
	places := map[string][]Place{}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		places[k.Kind] = k.candidates(func(PendingReason) bool { return true })
	}
	return places
}

// ApplyAllowed reports whether a controller may write into a namespace that is not the current one.
// It is false in these cases:
//
//   - A restored source waits for a decision (Restored).
//   - The upgrade is in StepSealTarget or a later step.
//   - An operation is pending on a namespace that is not current. A seal must not meet a controller
//     that starts under the next name.
func ApplyAllowed(d Deployment) bool {
	for _, ns := range d.Namespaces {
		if ns.Version != d.CurrentVersion && ns.pending() {
			return false
		}
	}
	if _, undecided := WasRestored(d); undecided {
		return false
	}
	if d.Upgrade == nil {
		return true
	}
	switch d.Upgrade.Step {
	case StepNone, StepHold, StepFence, StepDrain:
		return true
	case StepSealTarget, StepSealSource, StepAbort:
		return false
	default:
		return false
	}
}

func (k Kind) place() Place {
	return Place{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
}

// candidates returns the present name and the announced one, if the pending operation moves the
// kind and publish allows its reason.
func (k Kind) candidates(publish func(PendingReason) bool) []Place {
	ps := []Place{k.place()}
	if p := k.Pending; p != nil && p.Reason == PendingOpen && !k.Hidden && k.renames() && p.From != k.Physical {
		// An abort removes a fence that may or may not have been set.
		fenced := k.place()
		fenced.Name = p.From
		return append(ps, fenced)
	}
	// Until the rename is confirmed the kind may be at either name.
	if p := k.Pending; p != nil && publish(p.Reason) && k.moves(p.Reason) && p.To != k.Physical {
		next := k.place()
		next.Name = p.To
		ps = append(ps, next)
	}
	return ps
}
