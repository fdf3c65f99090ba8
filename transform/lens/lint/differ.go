package lint

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Difference is one path at which two documents differ. If only one of two groups has the document,
// the path is empty.
type Difference struct {
	Kind string
	Key  record.Key
	Path []string // field names, and list indexes
	// Was and Is are the two values. A zero value means absent.
	Was, Is bson.RawValue
}

// pattern returns the path with "*" for list items.
func pattern(path []string, doc bson.Raw) string {
	parts := slices.Clone(path)
	at := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
	for i, p := range path {
		// Counting differences by item would give one finding for each item.
		if at.Type == bson.TypeArray {
			parts[i] = "*"
		}
		next, err := bson.Raw(at.Value).LookupErr(p)
		if err != nil || next.Type != bson.TypeEmbeddedDocument && next.Type != bson.TypeArray {
			break
		}
		at = next
	}
	return strings.Join(parts, ".")
}

// String describes the difference for people. It shortens long values.
func (d Difference) String() string {
	what := strings.Join(d.Path, ".")
	if len(d.Path) == 0 {
		what = "record " + d.Key.String() + " of " + d.Kind
	}
	switch {
	case len(d.Path) == 0 && d.Is.Type == 0:
		return what + " is not there"
	case len(d.Path) == 0:
		return what + " is there as well"
	case d.Is.Type == 0:
		return what + " " + show(d.Was) + " is not there"
	case d.Was.Type == 0:
		return what + " " + show(d.Is) + " is there as well"
	default:
		return what + " " + show(d.Was) + " is " + show(d.Is)
	}
}

// show formats a value, shortened. It adds the type where JSON does not show it.
func show(v bson.RawValue) string {
	const most = 60
	s := v.String()
	switch v.Type {
	case bson.TypeInt32:
		s = "int " + trimNumber(s)
	case bson.TypeInt64:
		s = "long " + trimNumber(s)
	case bson.TypeDouble:
		s = "double " + trimNumber(s)
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// trimNumber extracts a number from {"$numberInt":"5"}.
func trimNumber(s string) string {
	if parts := strings.Split(s, `"`); len(parts) == 5 {
		return parts[3]
	}
	return s
}

// differences compares two groups. The order of fields does not count.
func differences(was, is []record.Record) []Difference {
	var out []Difference
	was, is = slices.Clone(was), slices.Clone(is)
	transform.SortRecords(was)
	transform.SortRecords(is)
	for len(was) > 0 || len(is) > 0 {
		switch c := compareHeads(was, is); {
		// Only was has this record. Both lists are sorted alike.
		case c < 0:
			out = append(out, Difference{Kind: was[0].Kind, Key: was[0].Key, Was: document(was[0].Doc)})
			was = was[1:]
		case c > 0:
			out = append(out, Difference{Kind: is[0].Kind, Key: is[0].Key, Is: document(is[0].Doc)})
			is = is[1:]
		default:
			if !bytes.Equal(was[0].Doc, is[0].Doc) {
				d := Difference{Kind: was[0].Kind, Key: was[0].Key}
				out = d.within(out, document(was[0].Doc), document(is[0].Doc))
			}
			was, is = was[1:], is[1:]
		}
	}
	return out
}

func document(doc bson.Raw) bson.RawValue {
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
}

func compareHeads(a, b []record.Record) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	if c := strings.Compare(a[0].Kind, b[0].Kind); c != 0 {
		return c
	}
	return strings.Compare(string(a[0].Key), string(b[0].Key))
}

// within appends the differences between two values at d's path.
func (d Difference) within(out []Difference, was, is bson.RawValue) []Difference {
	if was.Type == is.Type && bytes.Equal(was.Value, is.Value) {
		return out
	}
	if was.Type != is.Type || was.Type != bson.TypeEmbeddedDocument && was.Type != bson.TypeArray {
		d.Was, d.Is = was, is
		return append(out, d)
	}
	a, errA := bson.Raw(was.Value).Elements()
	b, errB := bson.Raw(is.Value).Elements()
	// A malformed document cannot be compared by field, so it differs as a whole.
	if errA != nil || errB != nil {
		d.Was, d.Is = was, is
		return append(out, d)
	}
	// Match fields by name, since their order does not count.
	there := make(map[string]bson.RawValue, len(b))
	for _, e := range b {
		there[e.Key()] = e.Value()
	}
	for i, e := range a {
		name := e.Key()
		if was.Type == bson.TypeArray {
			name = strconv.Itoa(i)
		}
		at := d
		at.Path = append(slices.Clone(d.Path), name)
		if v, ok := there[e.Key()]; ok {
			out = at.within(out, e.Value(), v)
			delete(there, e.Key())
			continue
		}
		at.Was = e.Value()
		out = append(out, at)
	}
	for _, e := range b {
		if _, left := there[e.Key()]; left {
			at := d
			at.Path, at.Is = append(slices.Clone(d.Path), e.Key()), e.Value()
			out = append(out, at)
		}
	}
	return out
}

// exact reports whether two groups are equal byte for byte.
func exact(a, b []record.Record) bool {
	// Sorting must not change the caller's groups.
	a, b = slices.Clone(a), slices.Clone(b)
	transform.SortRecords(a)
	transform.SortRecords(b)
	return slices.EqualFunc(a, b, func(x, y record.Record) bool {
		return x.Kind == y.Kind && x.Key == y.Key && bytes.Equal(x.Doc, y.Doc)
	})
}
