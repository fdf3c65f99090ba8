package identity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Evidence is everything that the databases of a deployment hold about it. It replaces a lost
// Deployment.
type Evidence struct {
	Deployment string
	Found      map[string]Found // by version; databases without a mark are left out

	restored string // current version if Doubt applies; empty if the marks decide
}

// Found is the content of one database.
type Found struct {
	Identity upgradestate.Identity
	Mark     Mark
	Claims   []record.Claim // of this namespace, by kind
}

// UndecidedError means that the marks do not show which version was the current one. An operator
// has to choose it.
type UndecidedError struct{ Reason string }

func (e *UndecidedError) Error() string {
	return "the marks do not show which version is current: " + e.Reason
}

// Gather reads everything that the databases, by version, hold about a deployment. It fails if none
// has a mark.
func Gather(ctx context.Context, deployment string, databases map[string]record.Marker) (Evidence, error) {
	e := Evidence{Deployment: deployment, Found: map[string]Found{}}
	for _, version := range slices.Sorted(maps.Keys(databases)) {
		owner := record.Owner{Deployment: deployment, Version: version}
		f, err := read(ctx, databases[version], owner)
		if err != nil {
			return e, fmt.Errorf("check the owner of the database of %s: %w", version, err)
		}
		// Another version of this deployment has data here: two entries of dbs are swapped.
		for _, other := range f.others {
			if other.Deployment == deployment && f.mark == nil && f.lived(other) {
				return e, &MismatchError{Version: version, Found: fmt.Sprintf("%s used it, not %s: correct dbs in the configuration", other, version)}
			}
		}
		if f.mark == nil {
			continue
		}
		// Everything after this counts on from these numbers.
		if err := plausible(*f.mark); err != nil {
			return e, fmt.Errorf("the mark of %s was not written by a controller: %w: restore it from a backup, or leave the database out of dbs", version, err)
		}
		found := Found{Identity: f.identity, Mark: *f.mark}
		for _, kind := range slices.Sorted(maps.Keys(f.claims)) {
			// Claims are listed by kind, so one of another owner may be among them.
			if c := f.claims[kind]; c.Owner == owner {
				found.Claims = append(found.Claims, c)
			}
		}
		e.Found[version] = found
	}
	if len(e.Found) == 0 {
		return e, errors.New("no database in dbs has a mark of " + deployment + ": correct deployment or dbs in the configuration; recover has no source")
	}
	return e, nil
}

// plausible refuses numbers that no deployment reaches. Counting on from them would overflow.
func plausible(m Mark) error {
	epoch := m.Epoch
	if m.Next != nil {
		// A rebuild continues from the announced epoch, too.
		epoch = max(epoch, m.Next.Epoch)
	}
	if epoch > implausible {
		return fmt.Errorf("it is in epoch %d", epoch)
	}
	d, err := m.Deployment()
	if err != nil {
		return nil //nolint:nilerr // a state that cannot be read is refused where it is needed
	}
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			if k.NextSeq > implausible {
				return fmt.Errorf("the next name of %s kind %s has number %d", ns.Version, k.Kind, k.NextSeq)
			}
		}
	}
	if d.Epoch > implausible {
		return fmt.Errorf("its state is in epoch %d", d.Epoch)
	}
	return nil
}

// epoch returns the latest epoch that may have begun.
func (e Evidence) epoch() uint64 {
	var latest uint64
	for _, f := range e.Found {
		latest = max(latest, f.Mark.Epoch)
		if n := f.Mark.Next; n != nil {
			latest = max(latest, n.Epoch)
		}
	}
	return latest
}

// Doubt adds the findings of the deployment's record, if there is one. The controllers may have
// found that the current version's database was restored from a backup that is older than its
// collections' names. Its mark then does not decide which version is current, and an operator
// chooses.
func (e *Evidence) Doubt(d upgradestate.Deployment) {
	if r, restored := upgradestate.WasRestored(d); restored && r.Older {
		e.restored = r.Version
	}
}

// Current decides which version is the current one, and returns the reason. choice is an operator's
// choice; it counts only where the marks show no version, and "" is none.
func (e Evidence) Current(choice string) (version, why string, err error) {
	version, why, undecided := e.decide()
	switch {
	case undecided == "" && choice != "" && choice != version:
		return "", "", fmt.Errorf("%s was chosen, but %s is the current version: %s", choice, version, why)
	case undecided == "":
		return version, why, nil
	case choice == "":
		return "", "", &UndecidedError{undecided}
	}
	if _, ok := e.Found[choice]; !ok {
		return "", "", fmt.Errorf("%s was chosen, and no database in dbs has a mark of it", choice)
	}
	return choice, "it was chosen; " + undecided, nil
}

// decide reads the current version from the marks. undecided is the reason if they do not show it.
func (e Evidence) decide() (version, why, undecided string) {
	// The mark of a restored database may be from before a switch.
	if e.restored != "" {
		return "", "", fmt.Sprintf("%s was current, but its database was restored from an older backup", e.restored)
	}
	var latest uint64
	// Older marks belong to restored databases and decide nothing.
	for _, f := range e.Found {
		latest = max(latest, f.Mark.Epoch)
	}
	var current []string
	for _, v := range slices.Sorted(maps.Keys(e.Found)) {
		if m := e.Found[v].Mark; m.Epoch == latest && m.Current {
			current = append(current, v)
		}
	}
	if len(current) > 1 {
		return "", "", "the marks of " + strings.Join(current, " and ") + " both name their own version, in epoch " + fmt.Sprint(latest)
	}
	if len(current) == 0 {
		// The new version's mark may not be written yet. The announcement in the other mark is
		// enough.
		for v, f := range e.Found {
			if n := f.Mark.Next; n != nil && n.Epoch == latest && n.To == v {
				return v, fmt.Sprintf("the mark of another version shows that switch %s to it was made", n.ID), ""
			}
		}
		return "", "", fmt.Sprintf("in epoch %d the current version was one whose database is missing from dbs or was restored from an earlier backup", latest)
	}
	was := current[0]
	// The latest mark may announce a switch of unknown end. The source is sealed then, so the
	// target is right in both cases.
	next := e.Found[was].Mark.Next
	if next == nil || next.To == was {
		return was, fmt.Sprintf("by its mark in epoch %d", latest), ""
	}
	if _, ok := e.Found[next.To]; !ok {
		return "", "", fmt.Sprintf("switch %s from %s to %s may have been made, but the database of %s is not in dbs", next.ID, was, next.To, next.To)
	}
	return next.To, fmt.Sprintf("switch %s from %s to it was about to be made or is made; %s is fenced, and all its data are in %s", next.ID, was, was, next.To), ""
}
