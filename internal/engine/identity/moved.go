package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// RecoveryID is the prefix of the id with which a recovery announces itself in the marks.
const RecoveryID = "recover-"

// MadeAnew returns the collections of a Deployment that were recreated under their names. A sharded
// cluster recreates collections when a shard is moved or resharded. Any other difference between
// the Deployment and the databases is a *MismatchError; it needs a recovery with every process
// stopped. An earlier recovery that did not finish does not count as a difference.
func (e Evidence) MadeAnew(d upgradestate.Deployment) (anew []upgradestate.Adopted, err error) {
	d = upgradestate.Clone(d)
	for i := range d.Namespaces {
		ns := &d.Namespaces[i]
		found, ok := e.Found[ns.Version]
		if !ok || ns.Identity == (upgradestate.Identity{}) || upgradestate.Retired(d, ns.Version) {
			continue
		}
		m := found.Mark
		announced := m.Next != nil && m.Next.To == d.CurrentVersion && strings.HasPrefix(m.Next.ID, RecoveryID)
		if announced {
			// An earlier recovery's announcement must not look like a switch of unknown end.
			m.Next = nil
		}
		f := facts{identity: found.Identity, mark: &m, claims: map[string]record.Claim{}}
		for _, c := range found.Claims {
			if j := slices.IndexFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Kind == c.Kind }); j >= 0 {
				was := &ns.Kinds[j]
				is := madeAnew(c, *was, announced)
				if is != "" && !own(d, *ns, *was) { // controllers follow an application's collection
					anew = append(anew, upgradestate.Adopted{Version: ns.Version, Kind: c.Kind, Was: was.ID, Is: is})
					was.ID, c.ID, c.Name = is, is, was.Physical
				}
			}
			f.claims[c.Kind] = c
		}
		// Compare the rest as if the record already knew the recreated collections.
		text := f.isMeant(d, *ns)
		if text == "" {
			text = f.fits(d, *ns)
		}
		if text != "" {
			return nil, &MismatchError{Version: ns.Version, Found: text}
		}
	}
	if len(anew) == 0 {
		return nil, &MismatchError{Found: "no collection was recreated"}
	}
	return anew, nil
}

// madeAnew returns the identity of the collection that took over the name of a kind after the
// kind's own collection was lost; "" if there is none. An announced recovery may have claimed it
// already.
func madeAnew(c record.Claim, k upgradestate.Kind, announced bool) string {
	switch {
	case k.ID == "":
		return ""
	case c.Name == "" && slices.Contains(names(k), c.InsteadName):
		return c.Instead
	case announced && c.ID != k.ID && slices.Contains(names(k), c.Name):
		return c.ID
	}
	return ""
}

// Anew returns the part of a Deployment, after an Adopt, that Reclaim needs: the adopted kinds.
func Anew(d upgradestate.Deployment, anew []upgradestate.Adopted) upgradestate.Deployment {
	only := upgradestate.Deployment{Name: d.Name}
	for _, a := range anew {
		ns, _ := d.Namespace(a.Version)
		k, _ := ns.Kind(a.Kind)
		only.Namespaces = append(only.Namespaces, upgradestate.Namespace{Version: a.Version, Kinds: []upgradestate.Kind{k}})
	}
	return only
}

// Lost returns the kinds of a version whose collection is gone while another one has its name. It
// leaves out those that controllers follow by their names (Replacements).
func Lost(ctx context.Context, d upgradestate.Deployment, version string, db record.Marker) (kinds []string, err error) {
	ns, _ := d.Namespace(version)
	claims, err := db.Claims(ctx)
	f := facts{claims: map[string]record.Claim{}}
	for _, c := range claims {
		f.claims[c.Kind] = c
	}
	for _, k := range ns.Kinds {
		c, ok := f.claims[k.Kind]
		gone := c.Name == "" && c.Instead != ""
		// Somebody has claimed the new one, and died before the record had it (Reclaim).
		claimed := !k.Fixed && k.ID != "" && c.ID != k.ID && slices.Contains(names(k), c.Name)
		if ok && c.Owner == (record.Owner{Deployment: d.Name, Version: version}) && (gone || claimed) && !f.isReplaced(d, ns, k) {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds, err
}

// TakenFor describes to operators that a new collection is adopted in place of a lost one.
func TakenFor(a upgradestate.Adopted, name string) string {
	return fmt.Sprintf("collection %s of kind %s of %s is gone, and %s under its name %s is adopted, which is right after movePrimary, moveCollection, "+
		"reshardCollection and unshardCollection; if somebody dropped the old collection, restore it instead", a.Was, a.Kind, a.Version, a.Is, name)
}
