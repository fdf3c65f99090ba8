package record

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Indexer maintains the indexes of existing collections. A token of another collection is ErrFenced
// or ErrNotFound, and the call has no effect.
type Indexer interface {
	// BuildIndexes builds the missing indexes of the kind's shape, and returns nil once all are
	// complete. ErrConflict reports an index with a declared name but another definition, or
	// documents that violate a unique index. A different expireAfterSeconds is no conflict.
	// Idempotent; concurrent callers share one build.
	BuildIndexes(ctx context.Context, tok Token, kind KindSpec) error
	// Reshape drops the named indexes that exist. It also sets the options of a fixed-name kind's
	// collection that can change later: validator, validationLevel, validationAction and
	// changeStreamPreAndPostImages. It does not change options of a managed kind. Idempotent.
	// ErrConflict: the collection is fenced by a validator, so its options belong to the fence.
	Reshape(ctx context.Context, tok Token, kind KindSpec, drop []string) error
	// Expire sets the seconds after which TTL indexes delete records, by index name. It returns a
	// nil error once the server confirms the change. NeverExpires stops the deletes. Expire skips
	// names without a TTL index. The result holds the seconds of each index right before the
	// change, even if err is not nil: they may differ from what the caller read. If the answer of a
	// change was lost, it holds the new seconds.
	Expire(ctx context.Context, tok Token, seconds map[string]int64) (had map[string]int64, err error)
}

// NeverExpires is the expireAfterSeconds of a TTL index that must delete nothing.
const NeverExpires int64 = 1<<31 - 1

// expireField is the field of an index spec for the seconds until it deletes records.
const expireField = "expireAfterSeconds"

// ExpiryOf returns the expireAfterSeconds of each TTL index in a shape, by index name. It returns
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

// WithExpiry returns the shape with new seconds for its TTL indexes, by index name. It ignores
// names of other indexes. TTL indexes without an entry keep their seconds.
func WithExpiry(s Shape, seconds map[string]int64) Shape {
	// The caller's shape must stay unchanged.
	s.Indexes = slices.Clone(s.Indexes)
	for i, spec := range s.Indexes {
		had, ok := secondsOf(spec)
		want, given := seconds[IndexName(spec)]
		// Keep the original bytes of a spec that does not change.
		if !ok || !given || had == want {
			continue
		}
		var d bson.D
		if bson.Unmarshal(spec, &d) != nil {
			continue // the backend reports the error in the spec
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

// Unexpiring returns the shape with TTL indexes that delete nothing, and their former seconds.
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

// IndexName returns the name of an index: the declared one, or the one that databases derive from
// its key.
func IndexName(spec bson.Raw) string {
	// A declared index may leave out its name.
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

// DefaultIndexName returns the name that databases derive from the key of an index.
func DefaultIndexName(key bson.D) string {
	parts := make([]string, 0, 2*len(key))
	for _, e := range key {
		parts = append(parts, e.Key, fmt.Sprint(e.Value))
	}
	return strings.Join(parts, "_")
}

// IsUnique reports whether an index refuses two documents with equal values in its fields.
func IsUnique(spec bson.Raw) bool {
	unique, _ := spec.Lookup("unique").BooleanOK()
	return unique
}

// Refuses reports whether an index refuses documents that other collections accept. A unique index
// refuses equal values. Indexes of type 2dsphere, 2d, text and hashed, and a wildcard with other
// fields, refuse values without an index entry. Such an index is built before the copy, so that the
// database refuses each bad record by itself. Any compound index also refuses arrays in two of its
// fields. That is rare, so those indexes are built after the copy. A failed build names all bad
// records.
func Refuses(spec bson.Raw) bool {
	key, _ := spec.Lookup("key").DocumentOK()
	elems, _ := key.Elements()
	for _, e := range elems {
		// A string is a special index type, such as 2dsphere or text.
		if e.Value().Type == bson.TypeString || len(elems) > 1 && strings.HasSuffix(e.Key(), "$**") {
			return true
		}
	}
	return IsUnique(spec)
}
