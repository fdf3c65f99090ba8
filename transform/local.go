package transform

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

// DeclareLocal registers kinds whose records belong to one namespace and are never migrated: each
// namespace of the version has its own, such as copies that can be made again. The kinds are
// provisioned and fenced like all others. No direction copies, compares or parks their records,
// also if the version moves to another place. If DeclareLocal returns an error, it added nothing.
func (r *Registry) DeclareLocal(version string, kinds ...record.KindSpec) error {
	wrap := func(err error) error { return fmt.Errorf("declare local kinds of %s: %w", version, err) }
	if version == "" {
		return wrap(errors.New("the version is empty"))
	}
	known := r.Kinds(version)
	for _, k := range kinds {
		switch {
		case k.Name == "":
			return wrap(errors.New("a kind has no name"))
		case k.Fixed:
			return wrap(fmt.Errorf("kind %s has a fixed name: its records belong to an application", k.Name))
		case IsLineage(k.Name):
			return wrap(fmt.Errorf("kind %s: names that begin with %s are taken", k.Name, lineagePrefix))
		case slices.ContainsFunc(known, func(have record.KindSpec) bool { return have.Name == k.Name }):
			return wrap(fmt.Errorf("kind %s is declared already", k.Name))
		}
		known = append(known, k)
	}
	if r.local == nil {
		r.local = map[string][]record.KindSpec{}
	}
	r.local[version] = append(slices.Clone(r.local[version]), kinds...)
	return nil
}

// localSpecs returns the local kinds of both sides of a direction as specs without a counterpart.
func (r *Registry) localSpecs(older, newer string) []Spec {
	side := func(k record.KindSpec) Side { return Side{Kinds: []GroupedKind{{KindSpec: k}}} }
	var specs []Spec
	for _, k := range r.local[older] {
		specs = append(specs, Spec{Name: "local to the older version: " + k.Name, Discontinued: true, Old: side(k)})
	}
	for _, k := range r.local[newer] {
		specs = append(specs, Spec{Name: "local to the newer version: " + k.Name, Introduced: true, New: side(k)})
	}
	return specs
}

// withLocal returns the hash of a direction that also has these specs. Without any it is hash, so
// that services without local kinds keep theirs.
func withLocal(hash string, specs []Spec) string {
	if len(specs) == 0 {
		return hash
	}
	h := sha256.New()
	put(h, "dbcontroller transform local 1", hash)
	for _, sp := range specs {
		put(h, sp.Name)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
