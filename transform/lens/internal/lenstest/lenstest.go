// Package lenstest has helpers for tests of lenses: sample lenses, records, generators and checks
// of the laws. Under the race detector it makes property tests draw fewer cases.
package lenstest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
)

// Parse parses and links a lens from kind old to kind new. A mistake in the lens fails the test.
func Parse(t testing.TB, text string) *lens.Lens {
	t.Helper()
	l, err := lens.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set := lens.NewSet()
	set.Add("old", "new", l)
	if err := set.Link(); err != nil {
		t.Fatal(err)
	}
	return l
}

// Ways returns both directions of a lens from kind old to kind new.
func Ways(t testing.TB, l *lens.Lens, options ...lens.SpecOption) (up, down transform.Direction) {
	t.Helper()
	r := transform.NewRegistry("test")
	if err := r.Add("v1", "v2", l.Spec("old", "new", options...)); err != nil {
		t.Fatal(err)
	}
	up, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	if down, err = r.Direction("v2", "v1"); err != nil {
		t.Fatal(err)
	}
	return up, down
}

// Record returns the record of a document. The document's _id must be its first field.
func Record(t interface{ Fatal(...any) }, kind string, d bson.D) record.Record {
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: raw}
}

// FromJSON returns the records of lines of the form "kind {extended JSON}", sorted by kind and key.
func FromJSON(t testing.TB, lines ...string) []record.Record {
	t.Helper()
	var out []record.Record
	for _, line := range lines {
		kind, text, _ := strings.Cut(line, " ")
		var raw bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(text), false, &raw); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		key, err := record.KeyOfDoc(raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, record.Record{Kind: kind, Key: key, Doc: raw})
	}
	transform.SortRecords(out)
	return out
}

// Show returns records in the form that FromJSON reads, one per line.
func Show(t interface {
	Helper()
	Fatal(args ...any)
}, rs []record.Record) string {
	t.Helper()
	var lines []string
	for _, r := range rs {
		text, err := bson.MarshalExtJSON(r.Doc, false, false)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s", r.Kind, text))
	}
	return strings.Join(lines, "\n")
}

// Take runs a transformer as the engine does. It sorts the source's records, the target's present
// records (have) and the results by kind and key.
func Take(f transform.Func, src, have []record.Record) ([]record.Record, error) {
	src, have = slices.Clone(src), slices.Clone(have)
	transform.SortRecords(src)
	transform.SortRecords(have)
	out, err := f(transform.Group{Records: src}, transform.Group{Records: have})
	transform.SortRecords(out)
	return out, err
}

// MustTake returns the results of Take. An error fails the test.
func MustTake(t testing.TB, f transform.Func, src, have []record.Record) []record.Record {
	t.Helper()
	out, err := Take(f, src, have)
	if err != nil {
		t.Fatalf("%v\nof %s", err, Show(t, src))
	}
	return out
}

// Maybe draws one of several values for a field and adds the field to d, or leaves the field out.
func Maybe(t *rapid.T, d bson.D, name string, values ...any) bson.D {
	if i := rapid.IntRange(0, len(values)).Draw(t, name); i > 0 {
		d = append(d, bson.E{Key: name, Value: values[i-1]})
	}
	return d
}

// Laws checks the laws of a lens from kind old to kind new, whose groups go by name.
func Laws(t *testing.T, l *lens.Lens, lossyUp, lossyDown bool, old, now func(*rapid.T) []record.Record) {
	t.Helper()
	up, down := Ways(t, l)
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, LossyUp: lossyUp, LossyDown: lossyDown, Old: rapid.Custom(old), New: rapid.Custom(now)})
}

// LinesByOrder is an operation that makes records of the lines of an order. A field of each record
// holds its place.
const LinesByOrder = `fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{id}", id: sku, order: position, parent: order}`

// Orders returns the text of a lens with these operations.
func Orders(operations ...string) string {
	return "operations:\n  - " + strings.Join(operations, "\n  - ")
}

// Line draws a line of an order with a given sku.
func Line(t *rapid.T, sku any) bson.D {
	return Maybe(t, Maybe(t, bson.D{{Key: "sku", Value: sku}}, "n", 1, "x", bson.D{}), "o", bson.D{{Key: "a", Value: 1}})
}

// Link parses and links lenses. texts maps the kind of each lens to its text. The error is the one
// of the link; a lens that does not parse fails the test.
func Link(t testing.TB, texts map[string]string) (map[string]*lens.Lens, error) {
	t.Helper()
	set, out := lens.NewSet(), map[string]*lens.Lens{}
	for name, text := range texts {
		l, err := lens.Parse(name+".yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		set.Add(name, name, l)
		out[name] = l
	}
	return out, set.Link()
}

// CheckOf transforms a record of kind k by one operation, and back. texts has the other lenses, by
// kind. The result must be now, byte for byte; an empty now accepts any result. The way back must
// give old again. If err is not empty, the transformation must instead fail with an error that
// contains err.
func CheckOf(t *testing.T, texts map[string]string, operation, old, now, err string) {
	t.Helper()
	all := map[string]string{"k": "operations:\n  - " + operation}
	maps.Copy(all, texts)
	ls, failed := Link(t, all)
	if failed != nil {
		t.Fatal(failed)
	}
	s, was := ls["k"].Spec("k", "k"), FromJSON(t, "k "+old)
	got, failed := Take(s.Up, was, nil)
	if err != "" {
		if failed == nil || !strings.Contains(failed.Error(), err) {
			t.Errorf("error is %v, want %q", failed, err)
		}
		return
	}
	if failed != nil {
		t.Fatal(failed)
	}
	if now != "" {
		if want := FromJSON(t, "k "+now); !SameBytes(got, want) {
			t.Errorf("became %s, want %s", Show(t, got), Show(t, want))
		}
	}
	if back := MustTake(t, s.Down, got, nil); !SameBytes(back, was) {
		t.Errorf("came back as %s", Show(t, back))
	}
}

// Users is a lens that adds a constant to the keys of users.
const Users = `
kinds: {from: users, to: users}
key: {from: "users/{user}", to: "orgs/{org}/users/{user}", with: {org: acme}}
operations: []
`

// Secrets is a lens that adds a constant to the names of secrets.
const Secrets = `
lens: 1
kinds: {from: old, to: new}
key:
  from: projects/{project}/secrets/{secret}
  to: projects/{project}/regions/{region}/secrets/{secret}
  with: {region: us-west2}
operations:
  - rename: {from: value, to: payload}
`

// SecretsByLocation is a lens that adds the value of a field to the names of secrets.
const SecretsByLocation = `
key:
  from: projects/{project}/secrets/{secret}
  to: projects/{project}/regions/{region}/secrets/{secret}
  with: {region: {field: location.region}}
operations:
  - rename: {from: value, to: payload}
`

// SameBytes reports whether two lists have the same records in the same order, byte for byte.
func SameBytes(a, b []record.Record) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Kind != b[i].Kind || a[i].Key != b[i].Key || !bytes.Equal(a[i].Doc, b[i].Doc) {
			return false
		}
	}
	return true
}

// Keyed returns the text of a lens that only changes the key.
func Keyed(key string) string { return "key: " + key + "\noperations: []\n" }

func init() { raced.DrawFewer() }
