package transform

import (
	"context"
	"slices"

	"dbcontroller.dev/record"
)

// Keys are those that a reference to another service's record holds.
type Keys string

// What a reference holds.
const (
	NewKeys  Keys = "new"  // the key of the other service's new version
	OldKeys  Keys = "old"  // that of its old version
	BothKeys Keys = "both" // one of them, and both in a list next to it
)

// AllKeys are the values of Keys.
var AllKeys = []Keys{NewKeys, OldKeys, BothKeys}

// Import is a reference to records of another service, whose keys it follows.
type Import struct {
	Service string // as the configuration's imports call it
	Kind    string // of that service
	From    string // the kind of the records that refer
	Field   string // dotted; * is any item of a list or entry of a map
	Keys    Keys   // what the field holds afterwards
	Asks    bool   // some keys do not follow from others alone, and are looked up
}

// Question is a key of another service's record of which that of the other version is wanted.
type Question struct {
	Service string // as the configuration's imports call it
	Old     string // the kind in that service's old version
	New     string // and in its new one
	Key     record.Key
	Up      bool // Key is one of the old version
}

// Answers are the keys of the other version. One that is not there is known to nobody.
type Answers map[Question]record.Key

// KeyFinder finds keys of other services' records that do not follow from keys alone.
type KeyFinder interface {
	FindKeys(ctx context.Context, asked []Question) (Answers, error)
}

// Imports are the references to other services that an upgrade from one version to another
// rewrites.
func (r *Registry) Imports(from, to string) []Import {
	steps, keys := r.path(from, to), NewKeys
	if steps == nil {
		steps, keys = r.path(to, from), OldKeys
	}
	var out []Import
	for _, s := range steps {
		for _, sp := range s.specs {
			for _, i := range sp.Imports {
				if i.Keys = keys; !slices.Contains(out, i) {
					out = append(out, i)
				}
			}
		}
	}
	return out
}

// Older reports whether a version comes before another one.
func (r *Registry) Older(version, than string) bool { return r.path(version, than) != nil }
