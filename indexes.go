package dbcontroller

import (
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// checkIndexes refuses invalid index fields, and kinds that their version does not have.
func (s Service) checkIndexes() error {
	registry := transform.NewRegistry(s.Name)
	if s.register(registry) != nil {
		return nil // the controller reports this error
	}
	for _, v := range s.Versions {
		known := registry.Kinds(v.Name)
		for _, kind := range slices.Sorted(maps.Keys(v.Indexes)) {
			// A version without known kinds may get them from the configuration, so any kind is
			// accepted.
			if len(known) > 0 && !slices.ContainsFunc(known, func(k record.KindSpec) bool { return k.Name == kind }) {
				return fmt.Errorf("dbcontroller.Service: Indexes of version %s: the version has no kind %s", v.Name, kind)
			}
			for i, field := range v.Indexes[kind] {
				if err := record.CheckIndexed(field); err != nil {
					return fmt.Errorf("dbcontroller.Service: Indexes of version %s: %s: %w", v.Name, kind, err)
				}
				if slices.Contains(v.Indexes[kind][:i], field) {
					return fmt.Errorf("dbcontroller.Service: Indexes of version %s: %s: %s is there twice", v.Name, kind, field)
				}
			}
		}
	}
	return nil
}

// indexed returns specs, the transformers into version i, with the declared index fields of their
// kinds on both sides. It copies specs and leaves the argument unchanged.
func (s Service) indexed(i int, specs []transform.Spec) []transform.Spec {
	declare := func(kinds []transform.GroupedKind, fields map[string][]string) []transform.GroupedKind {
		kinds = slices.Clone(kinds)
		for k := range kinds {
			kinds[k].Indexed = fields[kinds[k].Name]
		}
		return kinds
	}
	specs = slices.Clone(specs)
	for n := range specs {
		specs[n].Old.Kinds = declare(specs[n].Old.Kinds, s.Versions[i-1].Indexes)
		specs[n].New.Kinds = declare(specs[n].New.Kinds, s.Versions[i].Indexes)
	}
	return specs
}
