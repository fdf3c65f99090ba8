package lenstest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/transform/lens"
)

// Of parses a lens of operations, and checks that the schema accepts it.
func Of(t testing.TB, operations ...string) *lens.Lens {
	t.Helper()
	text := "operations: []"
	if len(operations) > 0 {
		text = "operations:\n  - " + strings.Join(operations, "\n  - ")
	}
	l, err := lens.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := Validate(t, []byte(text)); err != nil {
		t.Fatalf("the schema refuses what the parser takes: %v in\n%s", err, text)
	}
	return l
}

// JSON parses extended JSON. The empty text gives nil.
func JSON(t testing.TB, s string) bson.Raw {
	t.Helper()
	if s == "" {
		return nil
	}
	var d bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(s), false, &d); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return d
}

// Text writes a document as extended JSON.
func Text(d bson.Raw) string {
	s, err := bson.MarshalExtJSON(d, true, false)
	if err != nil {
		return err.Error()
	}
	return string(s)
}

// CheckBothWays: old becomes now, now becomes old but for the order of its fields, and
// old to the byte over what is there.
func CheckBothWays(t *testing.T, l *lens.Lens, old, now bson.Raw) {
	t.Helper()
	up, err := l.Up(old, nil)
	if err != nil || !bytes.Equal(up, now) {
		t.Fatalf("up: %s, %v\nwant %s", Text(up), err, Text(now))
	}
	down, err := l.Down(now, nil)
	if err != nil || Canonical(t, down) != Canonical(t, old) {
		t.Fatalf("down: %s, %v\nwant %s", Text(down), err, Text(old))
	}
	down, err = l.Down(now, old)
	if err != nil || !bytes.Equal(down, old) {
		t.Errorf("down over what is there: %s, %v\nwant %s", Text(down), err, Text(old))
	}
}

// HeldCase is a record that is transformed to what the other side has of it already.
type HeldCase struct {
	Name            string
	Ops             []string
	Down            bool
	Src, Have, Want string
}

// Canonical is a document as text with its fields sorted.
func Canonical(t testing.TB, d bson.Raw) string {
	t.Helper()
	elems, err := d.Elements()
	if err != nil {
		t.Fatalf("%x: %v", []byte(d), err)
	}
	parts := make([]string, len(elems))
	for i, e := range elems {
		v := e.Value()
		if sub, ok := v.DocumentOK(); ok {
			parts[i] = e.Key() + ":" + Canonical(t, sub)
		} else {
			parts[i] = fmt.Sprintf("%s:%x:%x", e.Key(), byte(v.Type), v.Value)
		}
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ",") + "}"
}

// Marshal encodes a document.
func Marshal(t *rapid.T, d bson.D) bson.Raw {
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Validate checks a lens with the schema, as an editor does.
func Validate(t testing.TB, text []byte) error {
	t.Helper()
	s, err := compiledSchema()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

var compiledSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(lens.Schema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("lens.schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("lens.schema.json")
})

// Check transforms the documents of the case in both directions.
func (c HeldCase) Check(t *testing.T) {
	t.Parallel()
	l := Of(t, c.Ops...)
	run := l.Up
	if c.Down {
		run = l.Down
	}
	got, err := run(JSON(t, c.Src), JSON(t, c.Have))
	if want := JSON(t, c.Want); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s, %v\nwant %s", Text(got), err, Text(want))
	}
}
