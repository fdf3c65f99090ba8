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

// Of parses a lens with these operations, and checks that the schema accepts it. A mistake fails
// the test.
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

// JSON returns the document of a text in extended JSON, or nil for an empty text.
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

// Text returns a document in canonical extended JSON, or the text of the error.
func Text(d bson.Raw) string {
	s, err := bson.MarshalExtJSON(d, true, false)
	if err != nil {
		return err.Error()
	}
	return string(s)
}

// CheckBothWays checks that a lens transforms old to now and back. Without a complement, the way
// back may change the order of fields. With old as the complement, it must give old byte for byte.
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

// HeldCase is a test of one transformation over a complement. Ops is the lens, Src the source's
// document, Have the target's present document, and Want the expected result, all in extended JSON.
// Down selects the direction down.
type HeldCase struct {
	Name            string
	Ops             []string
	Down            bool
	Src, Have, Want string
}

// Canonical returns a text that two documents share only if they are equal apart from the order of
// fields.
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

// Marshal returns the BSON of a document. An error fails the test.
func Marshal(t *rapid.T, d bson.D) bson.Raw {
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Validate checks the text of a lens with the JSON Schema, as an editor does.
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

// Check runs the case in parallel with other tests.
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
