package transform

import (
	"context"
	"slices"

	"dbcontroller.dev/record"
)

// Keys is the version of the keys that a reference to another service's record holds.
type Keys string

// The values of Keys.
const (
	NewKeys  Keys = "new"  // the key in the other service's new version
	OldKeys  Keys = "old"  // the key in the other service's old version
	BothKeys Keys = "both" // one of them, and both in a list next to it
)

// AllKeys lists the values of Keys.
var AllKeys = []Keys{NewKeys, OldKeys, BothKeys}

// Import is a reference to records of another service. Its keys follow that service's upgrade.
type Import struct {
	Service string // the service's name in the configuration's imports
	Kind    string // the kind in that service
	From    string // the kind of the referring records
	Field   string // dotted path; * is any item of a list or entry of a map
	Keys    Keys   // the version of the keys after the migration
	Asks    bool   // some keys do not follow from the old key alone and need a lookup
}

// Question asks for the key of another service's record in its other version.
type Question struct {
	Service string // the service's name in the configuration's imports
	Old     string // the kind in that service's old version
	New     string // the kind in its new version
	Key     record.Key
	Up      bool // Key belongs to the old version
}

// Answers holds the keys in the other version. A question without an entry has no known answer.
type Answers map[Question]record.Key

// KeyFinder looks up keys of other services' records that do not follow from the given key alone.
type KeyFinder interface {
	FindKeys(ctx context.Context, asked []Question) (Answers, error)
}

// Imports returns the references to other services that a migration between two versions rewrites.
// For a downgrade Keys is OldKeys.
func (r *Registry) Imports(from, to string) []Import {
	// Up rewrites references to the other service's new keys. Down restores the old keys.
	steps, keys := r.path(from, to), NewKeys
	if steps == nil {
		steps, keys = r.path(to, from), OldKeys
	}
	var out []Import
	for _, s := range steps {
		for _, sp := range s.specs {
			for _, i := range sp.Imports {
				// Several specs may rewrite the same reference.
				if i.Keys = keys; !slices.Contains(out, i) {
					out = append(out, i)
				}
			}
		}
	}
	return out
}

// Older reports whether version comes before than in the registered steps.
func (r *Registry) Older(version, than string) bool { return r.path(version, than) != nil }
