package record

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Indexer keeps the indexes of collections that are there. A token that is not that of the
// collection is ErrFenced or ErrNotFound, and has no effect.
type Indexer interface {
	// BuildIndexes builds what is missing of the indexes of the kind's shape, and returns
	// nil when all of them are complete. An index that is there under a declared name and
	// differs is an ErrConflict, as are documents that break a unique one; that it deletes
	// after other seconds is no difference. Idempotent; several callers share one build.
	BuildIndexes(ctx context.Context, tok Token, kind KindSpec) error
	// Reshape drops indexes by name, as far as they are there, and gives a fixed-name kind's
	// collection the options of the kind's shape that can be changed later: validator,
	// validationLevel, validationAction and changeStreamPreAndPostImages. It does not change
	// options of a managed kind. Idempotent. A collection that is fenced by a validator is
	// ErrConflict: its options are the fence's.
	Reshape(ctx context.Context, tok Token, kind KindSpec, drop []string) error
	// Expire changes after how many seconds TTL indexes delete records, by index name, and
	// returns nil once that is confirmed; NeverExpires stops them. An index that is gone,
	// or is no TTL index, is left out.
	Expire(ctx context.Context, tok Token, seconds map[string]int64) error
}

// NeverExpires are the seconds of a TTL index that is kept from deleting anything.
const NeverExpires int64 = 1<<31 - 1

// expireField is where an index spec holds after how many seconds it deletes.
const expireField = "expireAfterSeconds"

// ExpiryOf returns, by name, the seconds after which each TTL index of a shape deletes;
// nil if there is none.
func ExpiryOf(s Shape) map[string]int64 {
	var out map[string]int64
	for _, spec := range s.Indexes {
		if seconds, ok := secondsOf(spec); ok {
			if out == nil {
				out = map[string]int64{}
			}
			out[IndexName(spec)] = seconds
		}
	}
	return out
}

// WithExpiry returns the shape with the seconds of its TTL indexes replaced, by name.
// Names of other indexes are ignored, and those that are not given keep theirs.
func WithExpiry(s Shape, seconds map[string]int64) Shape {
	s.Indexes = slices.Clone(s.Indexes)
	for i, spec := range s.Indexes {
		had, ok := secondsOf(spec)
		want, given := seconds[IndexName(spec)]
		if !ok || !given || had == want {
			continue
		}
		var d bson.D
		if bson.Unmarshal(spec, &d) != nil {
			continue // the backend will report what is wrong with it
		}
		for j := range d {
			if d[j].Key == expireField {
				d[j].Value = want
			}
		}
		if raw, err := bson.Marshal(d); err == nil {
			s.Indexes[i] = raw
		}
	}
	return s
}

// Unexpiring returns the shape with TTL indexes that delete nothing, and the seconds that
// they had.
func Unexpiring(s Shape) (Shape, map[string]int64) {
	had := ExpiryOf(s)
	never := maps.Clone(had)
	for name := range never {
		never[name] = NeverExpires
	}
	return WithExpiry(s, never), had
}

func secondsOf(spec bson.Raw) (int64, bool) {
	v, err := spec.LookupErr(expireField)
	if err != nil {
		return 0, false
	}
	return v.AsInt64OK()
}

// IndexName is the name of an index: the one it has, or the one that databases make of
// its key.
func IndexName(spec bson.Raw) string {
	if name, ok := spec.Lookup("name").StringValueOK(); ok {
		return name
	}
	raw, _ := spec.Lookup("key").DocumentOK()
	var key bson.D
	if bson.Unmarshal(raw, &key) != nil {
		return ""
	}
	return DefaultIndexName(key)
}

// DefaultIndexName is the name that databases make of the key of an index.
func DefaultIndexName(key bson.D) string {
	parts := make([]string, 0, 2*len(key))
	for _, e := range key {
		parts = append(parts, e.Key, fmt.Sprint(e.Value))
	}
	return strings.Join(parts, "_")
}

// IsUnique reports whether an index refuses documents that agree in its fields.
func IsUnique(spec bson.Raw) bool {
	unique, _ := spec.Lookup("unique").BooleanOK()
	return unique
}

// Refuses reports whether an index refuses documents that other collections take: those that
// agree in it, and those with a value that its kind has no entry for (2dsphere, 2d, text,
// hashed, a wildcard next to other fields). Such an index is made before records are, so that
// each record that breaks it is refused by itself. Any index of several fields refuses lists
// in two of them, which is rare: those are made afterwards, and a build that fails names all
// that it cannot take.
func Refuses(spec bson.Raw) bool {
	key, _ := spec.Lookup("key").DocumentOK()
	elems, _ := key.Elements()
	for _, e := range elems {
		if e.Value().Type == bson.TypeString || len(elems) > 1 && strings.HasSuffix(e.Key(), "$**") {
			return true
		}
	}
	return IsUnique(spec)
}
