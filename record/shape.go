package record

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// IndexConflict is an ErrConflict: an index is there and is not the declared one. Index is the name
// of the one that is there.
type IndexConflict struct{ Index, Text string }

func (e *IndexConflict) Error() string { return e.Text }

// Is makes it an ErrConflict, and so an ErrRefused.
func (*IndexConflict) Is(target error) bool { return target == ErrConflict || target == ErrRefused }

// serverSet are elements of an index that a database adds or that do not decide which index it is.
var serverSet = []string{"v", "ns", "name", "key", "background", "textIndexVersion", "2dsphereIndexVersion"}

// DifferentIndex says in what an index that is there differs from a declared one.
func DifferentIndex(have, want bson.Raw) string {
	if a, b := have.Lookup("key"), want.Lookup("key"); a.String() != b.String() {
		return fmt.Sprintf("its key is %s, not %s", a, b)
	}
	var texts []string
	value := func(spec bson.Raw, name string) string {
		v, err := spec.LookupErr(name)
		if err != nil || v.Type == bson.TypeBoolean && !v.Boolean() {
			return "" // as if it were left out
		}
		return v.String()
	}
	var names []string
	for _, spec := range []bson.Raw{have, want} {
		elems, _ := spec.Elements()
		for _, e := range elems {
			if !slices.Contains(serverSet, e.Key()) && !slices.Contains(names, e.Key()) {
				names = append(names, e.Key())
			}
		}
	}
	for _, name := range names {
		a, b := value(have, name), value(want, name)
		switch {
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

// DifferentOptions names the options that Reshape would change; nothing where all are the same.
func DifferentOptions(have, want bson.Raw) []string {
	var names []string
	for name, none := range changeable {
		a, b := option(have, name, none), option(want, name, none)
		if a.Type != b.Type || !bytes.Equal(a.Value, b.Value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// changeable are the options that a collection can be given later, and what they are where they are
// left out.
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
		panic(err) // constants
	}
	return bson.RawValue{Type: t, Value: data}
}

// ChangeableOptions are the options of a shape that Reshape changes, each as it has to be set.
func ChangeableOptions(options bson.Raw) bson.D {
	var out bson.D
	for _, name := range []string{"validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"} {
		out = append(out, bson.E{Key: name, Value: option(options, name, changeable[name])})
	}
	return out
}
