package upgradestate

// Place is where a kind is, physically. Several places of one kind are candidates: the
// present name and the announced next one; the identity says which of them is real.
type Place struct {
	Kind  string
	Name  string
	ID    string
	Fixed bool
}

// WritePlaces returns the version whose stack serves and where its kinds can be written,
// one place for each kind; no places mean that writes must be held: in SWITCHING, and
// after a flip until every kind of the new namespace is open.
func WritePlaces(d Deployment) (version string, places []Place) {
	version = d.CurrentVersion
	if switching(d) {
		return version, nil
	}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if k.Pending != nil || k.Sealed || k.Hidden || k.Fenced != "" {
			return version, nil
		}
		places = append(places, k.place())
	}
	return version, places
}

// ReadPlaces returns where a client of a version can read each kind: the present name
// and the announced next one. A kind that is missing cannot be read now; wait for the
// record to change. The name of a last rename is never published, and only the current
// version can be read, so that nobody reads old data after a flip.
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

// EnginePlaces returns where a controller finds each kind of any version, whatever its
// state. Writing there is a matter of ApplyAllowed.
func EnginePlaces(d Deployment, version string) map[string][]Place {
	places := map[string][]Place{}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		places[k.Kind] = k.candidates(func(PendingReason) bool { return true })
	}
	return places
}

// ApplyAllowed reports whether a controller may write into a namespace that is not the
// current one. Not while a person has to decide about a restored source (Restored), from
// StepSealTarget on, nor while an operation on it is pending: its seal
// must find nobody who starts anew under the next name.
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

// candidates are the present name and, if the pending operation moves the kind and publish
// allows its reason, the announced one.
func (k Kind) candidates(publish func(PendingReason) bool) []Place {
	ps := []Place{k.place()}
	if p := k.Pending; p != nil && p.Reason == PendingOpen && !k.Hidden && k.renames() && p.From != k.Physical {
		// An abort removes a fence that may have been set or not.
		fenced := k.place()
		fenced.Name = p.From
		return append(ps, fenced)
	}
	if p := k.Pending; p != nil && publish(p.Reason) && k.moves(p.Reason) && p.To != k.Physical {
		next := k.place()
		next.Name = p.To
		ps = append(ps, next)
	}
	return ps
}
