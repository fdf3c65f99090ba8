package transform

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Declare registers kinds of a version without a transformer, for a service that has only one
// version and moves to another place. Transformers register their kinds themselves. If a version
// with declared kinds also has steps, each step must have those kinds. If Declare returns an error,
// it added nothing.
func (r *Registry) Declare(version string, kinds ...record.KindSpec) error {
	wrap := func(err error) error { return fmt.Errorf("declare kinds of %s: %w", version, err) }
	if version == "" {
		return wrap(errors.New("the version is empty"))
	}
	// known includes the kinds of transformers, so a kind cannot be fixed-name here and managed
	// there.
	known := r.Kinds(version)
	for _, k := range kinds {
		if k.Name == "" {
			return wrap(errors.New("a kind has no name"))
		}
		if IsLineage(k.Name) {
			return wrap(fmt.Errorf("kind %s: names that begin with %s are taken", k.Name, lineagePrefix))
		}
		i := slices.IndexFunc(known, func(have record.KindSpec) bool { return have.Name == k.Name })
		if i >= 0 && known[i].Fixed != k.Fixed {
			return wrap(fmt.Errorf("kind %s is declared as fixed-name and as managed", k.Name))
		}
		if i < 0 {
			known = append(known, k)
		}
	}
	// All kinds are valid: from here nothing fails.
	if r.declared == nil {
		r.declared = map[string][]record.KindSpec{}
	}
	r.declared[version] = append(slices.Clone(r.declared[version]), kinds...)
	return nil
}

// undeclared refuses a step that leaves out a declared kind. Its records would stay behind
// unnoticed.
func (r *Registry) undeclared(s step) error {
	for _, version := range []string{s.oldVersion, s.newVersion} {
		for _, k := range r.declared[version] {
			if !slices.ContainsFunc(s.specs, func(sp Spec) bool { _, ok := s.side(sp, version).kind(k.Name); return ok }) {
				return fmt.Errorf("kind %s of %s has no transformer between %s and %s: add one, or declare the kind discontinued or introduced",
					k.Name, version, s.oldVersion, s.newVersion)
			}
		}
	}
	return nil
}

// same is the direction between two places of one version. Each record is a group of its own and
// stays as it is.
func (r *Registry) same(from, to string) (Direction, error) {
	version := upgradestate.APIVersion(from)
	kinds := slices.DeleteFunc(r.Kinds(version), func(k record.KindSpec) bool {
		return slices.ContainsFunc(r.local[version], func(l record.KindSpec) bool { return l.Name == k.Name })
	})
	if len(kinds) == 0 {
		return nil, fmt.Errorf("%w: from %q to %q: no kinds of %s are known", ErrNoDirection, from, to, version)
	}
	// The hash covers the shape of each kind, so that controllers with other options or indexes do
	// not take part.
	h := sha256.New()
	put(h, "dbcontroller transform identity 1", r.service, from, to)
	specs := make([]Spec, len(kinds))
	for i, k := range kinds {
		side := Side{Kinds: []GroupedKind{{KindSpec: k}}}
		specs[i] = Spec{Name: k.Name, Old: side, New: side, Up: asIs, Down: asIs, Reversal: ReversalOwn}
		put(h, "kind", k.Name, fmt.Sprint(k.Fixed), string(k.Shape.Options))
		for _, ix := range k.Shape.Indexes {
			put(h, "index", string(ix))
		}
	}
	local := r.localSpecs(version, version)
	return compile(from, to, withLocal(hex.EncodeToString(h.Sum(nil)[:8]), local), append(specs, local...), true), nil
}

// asIs returns the records unchanged, without their guards.
func asIs(src, _ Group) ([]record.Record, error) {
	out := make([]record.Record, len(src.Records))
	for i, r := range src.Records {
		out[i] = record.Record{Kind: r.Kind, Key: r.Key, Doc: r.Doc}
	}
	return out, nil
}
