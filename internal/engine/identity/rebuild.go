package identity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// seqMargin is the number of names of a kind that a rebuild skips. A controller may have announced
// and sent them after it wrote the kind's mark. A switch uses at most two names, and each switch
// writes a mark.
const seqMargin = 16

// Rebuild returns the Deployment that the databases describe, with current as its current version,
// in a new epoch. It contains no upgrade. The engine syncs nothing to the version that the latest
// switch left until an operator begins an upgrade: if the coordination store is lost, so are the
// waived and parked lists, and a sync would treat those records as deleted. notes list every other difference for operators.
func (e Evidence) Rebuild(current string) (d upgradestate.Deployment, notes []string, err error) {
	var base upgradestate.Deployment
	for _, v := range slices.Sorted(maps.Keys(e.Found)) {
		seen, err := e.Found[v].Mark.Deployment()
		if err != nil {
			return d, nil, fmt.Errorf("%s: %w", v, err)
		}
		// The name decides whose marks and record are written, and a forged copy may have any.
		if seen.Name != "" && seen.Name != e.Deployment {
			return d, nil, fmt.Errorf("the mark of %s was not written by a controller: it holds a copy of %s: restore it from a backup, or leave the database out of dbs", v, seen.Name)
		}
		// Each mark holds a copy from its own time. The newest one knows most.
		if base.Name == "" || newer(seen, base) {
			base = seen
		}
	}
	if base.Name == "" {
		return d, nil, errors.New("no mark holds a copy of the deployment")
	}
	d = upgradestate.Clone(base)
	d.CurrentVersion, d.Epoch = current, e.epoch()+1
	// Nothing that was in progress may resume from an old copy.
	d.Upgrade, d.Available, d.Update, d.Following, d.Retire, d.Restored = nil, nil, nil, nil, nil, nil
	d.LastSwitch = e.lastSwitch(base, current)
	d.Namespaces = []upgradestate.Namespace{}
	for _, ns := range base.Namespaces {
		f, ok := e.Found[ns.Version]
		if !ok {
			notes = append(notes, fmt.Sprintf("%s is left out: no database in dbs has its mark", ns.Version))
			continue
		}
		ns.Identity = f.Identity
		kinds, more, err := f.kinds(ns, ns.Version == current)
		if err != nil {
			return d, nil, fmt.Errorf("%s: %w", ns.Version, err)
		}
		ns.Kinds = kinds
		notes = append(notes, more...)
		d.Namespaces = append(d.Namespaces, ns)
	}
	d.History = []upgradestate.Entry{{What: "recover", To: current, Detail: fmt.Sprintf("rebuilt from the databases' marks, after epoch %d", e.epoch())}}
	if err := upgradestate.Validate(d); err != nil {
		return d, nil, fmt.Errorf("the databases' marks do not give a valid deployment: %w", err)
	}
	return d, notes, nil
}

// newer reports whether copy a of a record is newer than copy b.
func newer(a, b upgradestate.Deployment) bool {
	if a.Epoch != b.Epoch {
		return a.Epoch > b.Epoch
	}
	return used(a) > used(b)
}

// used counts the announced names and marks of a record. The count only grows.
func used(d upgradestate.Deployment) (n uint64) {
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			n += k.NextSeq
		}
	}
	return n
}

// lastSwitch returns the switch that led to the current version, as far as the marks show it; nil
// if they show none.
func (e Evidence) lastSwitch(base upgradestate.Deployment, current string) *upgradestate.Switch {
	last := base.LastSwitch
	if current != base.CurrentVersion {
		made := &upgradestate.Switch{From: base.CurrentVersion, To: current}
		if u := base.Upgrade; u != nil && u.TargetVersion == current {
			m, _ := upgradestate.ImagesOf(base, current)
			made.TransformHash, made.Generation, made.Epoch, made.Snapshot = u.TransformHash, m.Generation, base.Epoch, u.Snapshot
		}
		for _, f := range e.Found {
			if n := f.Mark.Next; n != nil && n.To == current {
				made.ID = n.ID
			}
		}
		// No upgrade made this switch. Other deployments recognize it by its id.
		if made.ID == "" {
			made.ID = fmt.Sprintf("%s%d-%s", RecoveryID, e.epoch()+1, current)
		}
		made.Back = last != nil && last.From == current && !last.Back
		last = made
	}
	if last == nil {
		return nil
	}
	s := *last
	// Without positions the old namespace cannot be synced. Records that were waived at the switch
	// are still kept if the coordination store lists them.
	s.Position, s.Before, s.Outdated = "", "", true
	return &s
}

// kinds returns the kinds of a namespace in their present state. It returns an error where a guess
// could lose data.
func (f Found) kinds(ns upgradestate.Namespace, current bool) (kinds []upgradestate.Kind, notes []string, err error) {
	claims := map[string]record.Claim{}
	for _, c := range f.Claims {
		claims[c.Kind] = c
	}
	for _, k := range ns.Kinds {
		c, ok := claims[k.Kind]
		served := current && k.Fixed && k.ID != ""
		taken := ok && c.Bearer != "" && c.Bearer != c.ID // another collection has the kind's own name
		switch {
		case ok && k.ID == "":
			return nil, nil, fmt.Errorf("kind %s has no identity on this server, and cannot be distinguished from another collection: set up the deployment yourself", k.Kind)
		case served && taken && hiddenName(k.Kind, c.Name):
			// A fence had moved the old one away. Nothing shows which of the two the service needs.
			return nil, nil, &TwoCollectionsError{Version: ns.Version, Kind: k.Kind, Fenced: c.ID, FencedName: c.Name, Live: c.Bearer}
		case served && taken:
			// The application reaches the collection with this name, wherever the old one went. The
			// first controller follows the application, as it would have done if etcd had survived.
			r := Replaced{Version: ns.Version, Kind: k.Kind, Was: c.ID, Away: c.Name, Is: c.Bearer}
			notes = append(notes, r.String()+"; the other collection stays where it is")
			k.ID, k.Fenced, c.Name, c.Fence = c.ID, "", k.Kind, ""
		case ok && c.Name != "" && c.Name != k.Kind && !hiddenName(k.Kind, c.Name):
			return nil, nil, fmt.Errorf("somebody else renamed collection %s of kind %s to %s, and no collection has its name: rename it back to %s",
				c.ID, k.Kind, c.Name, k.Physical)
		case ok && c.Name == "" && slices.Contains(names(k), c.InsteadName):
			// Accept the new collection only under a name that the mark knows: the old one had that
			// name when it was moved.
			notes = append(notes, TakenFor(upgradestate.Adopted{Version: ns.Version, Kind: k.Kind, Was: k.ID, Is: c.Instead}, c.InsteadName))
			k.ID, c.ID, c.Name = c.Instead, c.Instead, c.InsteadName
		case ok && c.Name != "" && c.ID != k.ID && slices.Contains(names(k), c.Name):
			k.ID = c.ID // an interrupted recovery has claimed it already
		case !ok || c.Name == "" || c.ID != k.ID:
			return nil, nil, fmt.Errorf("collection %s of kind %s is gone: restore it", k.ID, k.Kind)
		}
		delete(claims, k.Kind)
		rebuilt, err := rebuild(k, c, current)
		if err != nil {
			return nil, nil, err
		}
		kinds = append(kinds, rebuilt)
	}
	for _, kind := range slices.Sorted(maps.Keys(claims)) {
		notes = append(notes, fmt.Sprintf("kind %s of %s was never used: the next controller takes it over again", kind, ns.Version))
	}
	return kinds, notes, nil
}

// TwoCollectionsError means that two collections claim to be the same kind of the current version.
// A fence moved one of them away, and the other was created later under the kind's own name.
// Rebuild writes nothing, and never renames one over the other; an operator decides.
type TwoCollectionsError struct {
	Version, Kind      string
	Fenced, FencedName string // identity and name of the fenced collection
	Live               string // identity of the collection with the kind's own name
}

func (e *TwoCollectionsError) Error() string {
	return fmt.Sprintf("two collections claim to be kind %s of %s: %s, which a switch has moved to %s, and %s, which applications reach as %s: "+
		"check both, rename the one that must not be served to another name (such as %s_old), and repeat the command",
		e.Kind, e.Version, e.Fenced, e.FencedName, e.Live, e.Kind, e.Kind)
}

// rebuild returns a kind in its present state. It announces the opening of a hidden or fenced kind
// of the current version, so that applications can write it again.
func rebuild(k upgradestate.Kind, c record.Claim, current bool) (upgradestate.Kind, error) {
	wasHidden := k.Hidden
	// A name once used must never be used again: a late rename could still arrive for it.
	for _, name := range []string{c.Name, c.Fence, k.Fenced} {
		if kind, seq, ok := record.KindOfPhysical(name); ok && kind == k.Kind {
			k.NextSeq = max(k.NextSeq, seq+1)
		}
	}
	// Counting on from a forged number would soon overflow.
	if k.NextSeq > implausible {
		return k, fmt.Errorf("kind %s has a name with the number %d, which no controller assigned: rename that collection", k.Kind, k.NextSeq-1)
	}
	k.NextSeq += seqMargin
	k.Physical, k.Pending, k.Sealed = c.Name, nil, false
	k.Hidden = k.Fixed && c.Name != k.Kind
	switch record.FenceClass(k.Fence) {
	case record.FenceUUID:
		k.Fenced = ""
	case record.FenceView, record.FenceRole:
		switch {
		case !k.Hidden:
			k.Fenced = ""
		case !wasHidden:
			k.Fenced = c.Name // fenced after the mark was written
		}
	case record.FenceValidator:
		k.Fenced = c.Fence
	case record.FenceWriteBlock:
		if current {
			return k, fmt.Errorf("kind %s is fenced by writeBlock, and it is unknown whether the cluster is blocked for it: remove the block yourself and give the kind another class first", k.Kind)
		}
	}
	switch {
	// A seal or an opening may have died after it ended the mark that is known here. All Applies with
	// that mark would fail. A kind that was open has no mark, and nothing could end its appliers. So
	// give it a new mark. Nobody may apply before that.
	case !current && k.Fixed && !k.Hidden && keepsName(k.Fence):
		k.Pending = &upgradestate.Pending{Reason: upgradestate.PendingSeal, From: k.Physical, To: record.PhysicalName(k.Kind, k.NextSeq)}
		k.NextSeq++
	case !current:
	case k.Hidden:
		k.Pending = &upgradestate.Pending{Reason: upgradestate.PendingOpen, From: k.Physical, To: k.Kind}
	case k.Fenced != "":
		k.Pending = &upgradestate.Pending{Reason: upgradestate.PendingOpen, From: k.Fenced, To: k.Physical}
	}
	return k, nil
}

// keepsName reports whether a kind has its own name behind a fence of a class. Its appliers carry
// the mark of the fence.
func keepsName(class string) bool {
	return class == string(record.FenceValidator) || class == string(record.FenceWriteBlock)
}

// Announce marks in all databases that a rebuilt Deployment may be in force. Call it before the
// record is stored. A controller that checks in between is then not refused, and a repeated
// recovery sees the attempt. id begins with RecoveryID.
func Announce(ctx context.Context, d upgradestate.Deployment, id string, databases map[string]record.Marker) error {
	return everywhere(ctx, d, databases, func(m *Mark) error {
		// Another recovery was faster, or a switch went on: the rebuilt record is outdated. The mark
		// of a switch that is about to flip must stay.
		if m.Epoch >= d.Epoch || m.Next != nil && m.Next.Epoch > d.Epoch {
			return fmt.Errorf("it is in epoch %d now: begin again", m.Epoch)
		}
		m.Next = &Next{ID: id, Epoch: d.Epoch, To: d.CurrentVersion}
		return nil
	})
}

// Finalize marks in all databases that a rebuilt Deployment is in force. Call it after the record
// is stored.
func Finalize(ctx context.Context, d upgradestate.Deployment, databases map[string]record.Marker) error {
	text, err := state(d)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, ns := range d.Namespaces {
		g.Go(func() error {
			// One namespace per goroutine: the mark depends on the version.
			return everywhere(ctx, upgradestate.Deployment{Name: d.Name, Namespaces: []upgradestate.Namespace{ns}}, databases, func(m *Mark) error {
				m.Epoch, m.Current, m.Next, m.Aborted, m.State = d.Epoch, ns.Version == d.CurrentVersion, nil, nil, text
				return nil
			})
		})
	}
	return g.Wait()
}

// Reclaim claims the collections of a rebuilt Deployment, before the record is stored. It adds
// claims for recreated collections, which have none yet. It may be repeated.
func Reclaim(ctx context.Context, d upgradestate.Deployment, databases map[string]record.Marker) error {
	for _, ns := range d.Namespaces {
		owner := record.Owner{Deployment: d.Name, Version: ns.Version}
		claims, err := databases[ns.Version].Claims(ctx)
		if err != nil {
			return fmt.Errorf("label the collections of %s: %w", ns.Version, err)
		}
		for _, k := range ns.Kinds {
			// Claim only what is missing, so that a repetition changes nothing.
			mine := func(c record.Claim) bool { return c.Owner == owner && c.Kind == k.Kind && c.ID == k.ID }
			if slices.ContainsFunc(claims, mine) {
				continue // possibly gone; a controller follows its replacement
			}
			tok := record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
			if err := databases[ns.Version].Claim(ctx, tok, owner); err != nil {
				return fmt.Errorf("label the collections of %s: %w", ns.Version, err)
			}
		}
	}
	return nil
}

// everywhere changes the mark of every namespace with a database in databases.
func everywhere(ctx context.Context, d upgradestate.Deployment, databases map[string]record.Marker, change func(*Mark) error) error {
	for _, ns := range d.Namespaces {
		// A version without a configured database has no mark to write.
		if databases[ns.Version] == nil {
			continue
		}
		err := put(ctx, databases[ns.Version], record.Owner{Deployment: d.Name, Version: ns.Version}, func(m *Mark) (bool, error) {
			return true, change(m)
		})
		if err != nil {
			return fmt.Errorf("mark the database of %s: %w", ns.Version, err)
		}
	}
	return nil
}
