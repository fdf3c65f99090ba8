package registry

import (
	"slices"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// followable refuses updates that would begin by themselves after a switch that no controller sees,
// or that could never look their keys up.
func followable(r *transform.Registry, imports []config.Import) error {
	follow := 0
	for _, t := range r.Tasks() {
		if !t.Follow {
			continue
		}
		if follow++; follow > upgradestate.MaxFollowing {
			return exit.Usagef("updates: more than %d have follow: true: the record of the deployment has no room for more", upgradestate.MaxFollowing)
		}
		at := slices.IndexFunc(imports, func(i config.Import) bool { return i.Service == t.Imports[0].Service })
		if at < 0 {
			return exit.Usagef("updates: %s follows the switches of %s by itself: name its deployment and versions in imports", t.Name, t.Imports[0].Service)
		}
		for _, i := range t.Imports {
			if i.Asks && len(imports[at].DBs) == 0 {
				return exit.Usagef("updates: %s looks keys of %s of %s up: give its databases in imports[].dbs", t.Name, i.Kind, i.Service)
			}
		}
	}
	return nil
}

// ofKinds refuses updates that would begin by themselves over a kind that their version does not have.
func ofKinds(r *transform.Registry) error {
	for _, t := range r.Tasks() {
		is := func(k record.KindSpec) bool { return k.Name == t.Kind }
		if t.Follow && slices.Contains(r.Versions(), t.Version) && !slices.ContainsFunc(r.Kinds(t.Version), is) {
			return exit.Usagef("updates: %s cannot follow the switches of %s by itself: %s has no kind %s", t.Name, t.Imports[0].Service, t.Version, t.Kind)
		}
	}
	return nil
}

// renames are the kinds of the newer version that lenses make, by pair of versions and kind of the
// older one.
type renames map[[2]string]map[string][]string

// undisturbed refuses updates that would begin by themselves and change references that the lens of
// an upgrade reads: it takes references of one version of the other service only, and would park all others.
func undisturbed(r *transform.Registry, versions []string, becomes renames) error {
	for i, newer := range versions[1:] {
		older := versions[i]
		rewritten := r.Imports(older, newer)
		for _, t := range r.Tasks() {
			if !t.Follow || t.Version != older && t.Version != newer {
				continue
			}
			same := func(i transform.Import) bool {
				kinds := []string{i.From} // also a kind of Go code, which may keep its name
				if made, ok := becomes[[2]string{older, newer}][i.From]; ok && t.Version == newer {
					kinds = made
				}
				return i.Service == t.Imports[0].Service && slices.Contains(kinds, t.Kind)
			}
			if slices.ContainsFunc(rewritten, same) {
				return exit.Usagef("updates: %s cannot follow the switches of %s by itself: the upgrade from %s to %s changes the same references of %s by its lens: leave follow out", t.Name, t.Imports[0].Service, older, newer, t.Kind)
			}
		}
	}
	return nil
}
