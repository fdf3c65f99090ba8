// Package registry makes the transformers of a configuration, and the indexes and options that its kinds
// carry over.
package registry

import (
	"maps"
	"os"
	"slices"
	"strings"

	"dbcontroller.dev/config"
	dataupdate "dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// Register adds a service's own transformers to an empty registry. The registry's Service is the
// one of the configuration.
type Register func(*transform.Registry) error

// Of returns the registry of a configuration: the transformers that register adds, the
// data updates, and a lens for each fixed-name kind. It also returns the indexes and options that
// each pair of versions carries over. A nil register adds nothing.
func Of(cfg config.Config, register Register) (*transform.Registry, collections.Carries, error) {
	r := transform.NewRegistry(strings.Split(cfg.Deployment, "/")[1])
	if register != nil {
		if err := register(r); err != nil {
			return nil, nil, err
		}
	}
	if err := addUpdates(r, cfg.Updates); err != nil {
		return nil, nil, err
	}
	if err := followable(r, cfg.Imports); err != nil {
		return nil, nil, err
	}
	versions := cfg.APIVersions()
	// With a single version there is no lens to declare the kinds, so declare them here.
	if len(versions) == 1 {
		if err := r.Declare(versions[0], fixed(cfg.Kinds)...); err != nil {
			return nil, nil, err
		}
		if err := ofKinds(r); err != nil {
			return nil, nil, err
		}
		return r, nil, knownInEtcd(r, cfg.DBs)
	}
	becomes := renames{}
	shapes := collections.Carries{}
	var before []string // fixed-name kinds that the previous pair made
	for i, newer := range versions[1:] {
		p := pair{older: versions[i], newer: newer}
		for _, k := range cfg.Kinds {
			if k.Older == p.older {
				p.kinds = append(p.kinds, k)
			}
		}
		if err := p.read(); err != nil {
			return nil, nil, err
		}
		// A kind without an entry would be left behind silently at the next upgrade.
		for _, kind := range before {
			if !slices.Contains(p.taken, kind) {
				return nil, nil, exit.Usagef("kinds: collection %s of %s has no transform to %s: add an entry with from: %s and versions: [%s, %s], or one that is discontinued",
					kind, p.older, p.newer, kind, p.older, p.newer)
			}
		}
		// The next pair must take everything that this one makes.
		before = p.made
		if len(p.specs) == 0 {
			continue
		}
		becomes[[2]string{p.older, p.newer}] = p.becomes
		if err := r.Add(p.older, p.newer, p.specs...); err != nil {
			return nil, nil, err
		}
		shapes[[2]string{p.older, p.newer}] = p.shapes
	}
	if err := ofKinds(r); err != nil {
		return nil, nil, err
	}
	if err := undisturbed(r, versions, becomes); err != nil {
		return nil, nil, err
	}
	return r, shapes, knownInEtcd(r, cfg.DBs)
}

// knownInEtcd refuses etcd.kinds that are no fixed-name kinds of their version. With a misspelled
// name, the application's keys would never be found.
func knownInEtcd(r *transform.Registry, dbs []config.DB) error {
	for _, db := range dbs {
		var kinds []string
		for _, k := range r.Kinds(db.APIVersion) {
			if k.Fixed {
				kinds = append(kinds, k.Name)
			}
		}
		for _, k := range db.Kinds {
			if !slices.Contains(kinds, k.Name) {
				return exit.Usagef("etcd.kinds of %s: %s is not a kind of that version in kinds, which has: %s", db.Version, k.Name, strings.Join(kinds, ", "))
			}
		}
	}
	return nil
}

// fixed returns the kinds of a service with a single version.
func fixed(kinds []config.Kind) []record.KindSpec {
	out := make([]record.KindSpec, len(kinds))
	for i, k := range kinds {
		out[i] = record.KindSpec{Name: k.From, Fixed: true}
	}
	return out
}

// pair is two successive versions and the fixed-name kinds between them.
type pair struct {
	older, newer string
	kinds        []config.Kind

	specs       []transform.Spec
	shapes      map[string]collections.Carry // by kind of the newer version
	taken, made []string                     // kinds of the older and of the newer version
	becomes     map[string][]string          // kinds of the newer version, by from of their lens
}

func (p *pair) read() error {
	lenses, err := loadLenses(p.kinds)
	if err != nil {
		return err
	}
	p.shapes, p.becomes = map[string]collections.Carry{}, map[string][]string{}
	for i, k := range p.kinds {
		if k.Discontinued {
			p.specs = append(p.specs, discontinued(k.From))
			p.taken = append(p.taken, k.From)
			continue
		}
		shapes, err := Carries(k, lenses[i])
		if err != nil {
			return err
		}
		maps.Copy(p.shapes, shapes)
		p.specs = append(p.specs, lenses[i].Spec(k.From, k.To))
		taken, made := lenses[i].Kinds(k.From, k.To)
		p.taken, p.made = append(p.taken, taken...), append(p.made, made...)
		p.becomes[k.From] = made
	}
	return nil
}

// loadLenses parses the lens of each kind and links the lenses. Discontinued kinds have a nil lens.
func loadLenses(kinds []config.Kind) ([]*lens.Lens, error) {
	lenses, set := make([]*lens.Lens, len(kinds)), lens.NewSet()
	for i, k := range kinds {
		if k.Discontinued {
			set.AddDiscontinued(k.From)
			continue
		}
		text, err := os.ReadFile(k.Lens)
		if err != nil {
			return nil, exit.Usagef("kinds: lens of %s: %w", k.From, err)
		}
		if lenses[i], err = lens.Parse(k.Lens, text); err != nil {
			return nil, err
		}
		set.Add(k.From, k.To, lenses[i])
	}
	return lenses, set.Link()
}

// discontinued returns the spec of a kind that the newer version drops.
func discontinued(kind string) transform.Spec {
	return transform.Spec{
		Name: kind, Revision: "discontinued", Discontinued: true,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind, Fixed: true}}}},
	}
}

// addUpdates adds the configured data updates to the registered ones.
func addUpdates(r *transform.Registry, updates []config.Update) error {
	for _, u := range updates {
		t, err := dataupdate.FromLens(u.Name, u.Version, u.Kind, u.Lens, transform.Keys(u.References))
		if err != nil {
			return err
		}
		t.Description, t.Follow = u.Description, u.Follow
		if err := r.AddTasks(t); err != nil {
			return err
		}
	}
	return nil
}
