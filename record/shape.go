package record

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// IndexConflict is an ErrConflict: an existing index differs from the declared one. Index is the
// name of the existing one.
type IndexConflict struct{ Index, Text string }

func (e *IndexConflict) Error() string { return e.Text }

// Is makes the error match ErrConflict and ErrRefused.
func (*IndexConflict) Is(target error) bool { return target == ErrConflict || target == ErrRefused }

// serverSet lists the elements of an index spec that a comparison ignores: the database adds them,
// or they do not define the index. The key is compared separately.
var serverSet = []string{"v", "ns", "name", "key", "background", "textIndexVersion", "2dsphereIndexVersion"}

// DifferentIndex describes how an existing index differs from a declared one. Empty: no difference.
func DifferentIndex(have, want bson.Raw) string {
	if a, b := have.Lookup("key"), want.Lookup("key"); a.String() != b.String() {
		return fmt.Sprintf("its key is %s, not %s", a, b)
	}
	var texts []string
	value := func(spec bson.Raw, name string) string {
		v, err := spec.LookupErr(name)
		if err != nil || v.Type == bson.TypeBoolean && !v.Boolean() {
			return "" // an option that is false equals a missing one
		}
		return v.String()
	}
	var names []string
	for _, spec := range []bson.Raw{have, want} {
		elems, _ := spec.Elements()
		for _, e := range elems {
			// An option may be on either side only.
			if !slices.Contains(serverSet, e.Key()) && !slices.Contains(names, e.Key()) {
				names = append(names, e.Key())
			}
		}
	}
	for _, name := range names {
		a, b := value(have, name), value(want, name)
		switch {
		// Expire can change the seconds later, so they make no difference.
		case a == b, name == expireField && a != "" && b != "":
		case b == "":
			texts = append(texts, fmt.Sprintf("it has %s: %s", name, a))
		case a == "":
			texts = append(texts, fmt.Sprintf("it lacks %s: %s", name, b))
		default:
			texts = append(texts, fmt.Sprintf("%s is %s, not %s", name, a, b))
		}
	}
	return strings.Join(texts, ", ")
}

// DifferentOptions returns the names of the options that Reshape would change, sorted. nil: none.
func DifferentOptions(have, want bson.Raw) []string {
	var names []string
	for name, none := range changeable {
		a, b := option(have, name, none), option(want, name, none)
		// Compare bytes: the server keeps the order of fields in a validator.
		if a.Type != b.Type || !bytes.Equal(a.Value, b.Value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// changeable maps the options that an existing collection can change to their defaults.
var changeable = map[string]any{
	"validator": bson.D{}, "validationLevel": "strict", "validationAction": "error",
	"changeStreamPreAndPostImages": bson.D{{Key: "enabled", Value: false}},
}

func option(options bson.Raw, name string, none any) bson.RawValue {
	if v, err := options.LookupErr(name); err == nil {
		return v
	}
	return rawValue(none)
}

func rawValue(v any) bson.RawValue {
	t, data, err := bson.MarshalValue(v)
	if err != nil {
		panic(err) // cannot fail: constants
	}
	return bson.RawValue{Type: t, Value: data}
}

// ChangeableOptions returns all options that Reshape changes, in the form of the collMod command,
// with defaults for the missing ones.
func ChangeableOptions(options bson.Raw) bson.D {
	var out bson.D
	for _, name := range []string{"validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"} {
		out = append(out, bson.E{Key: name, Value: option(options, name, changeable[name])})
	}
	return out
}
