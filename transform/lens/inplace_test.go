package lens_test

import (
	"bytes"
	"strings"
	"testing"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

func TestInPlace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		ops      []string
		old, new string
	}{
		{"default", []string{"add: {field: region, default: us}"}, `{"_id":1,"a":2}`, `{"_id":1,"a":2,"region":"us"}`},
		{"what the service wrote stays", []string{"add: {field: region, default: us}"}, `{"_id":1,"region":"eu","a":2}`, `{"_id":1,"region":"eu","a":2}`},
		{"null is a value", []string{"add: {field: region, default: us}"}, `{"_id":1,"region":null}`, `{"_id":1,"region":null}`},
		{"constant", []string{"add: {field: schema, value: 2}"}, `{"_id":1}`, `{"_id":1,"schema":2}`},
		{"copy", []string{"copy: {from: name, to: title}"}, `{"_id":1,"name":"x"}`, `{"_id":1,"name":"x","title":"x"}`},
		{"copy made before", []string{"copy: {from: name, to: title}"}, `{"_id":1,"name":"x","title":"X!"}`, `{"_id":1,"name":"x","title":"X!"}`},
		{"convert", []string{"convert: {field: size, from: int, to: long}"}, `{"_id":1,"size":3}`, `{"_id":1,"size":{"$numberLong":"3"}}`},
		{"text to number", []string{"convert: {field: size, from: string, to: long}"}, `{"_id":1,"size":"3"}`, `{"_id":1,"size":{"$numberLong":"3"}}`},
		{"table", []string{"convert: {field: p, table: {optional: normal, required: base}}"}, `{"_id":1,"p":"required"}`, `{"_id":1,"p":"base"}`},
		{"rename", []string{"rename: {from: a, to: b}"}, `{"_id":1,"a":2,"c":3}`, `{"_id":1,"b":2,"c":3}`},
		{"move", []string{"move: {from: a, to: o.a}"}, `{"_id":1,"a":2}`, `{"_id":1,"o":{"a":2}}`},
		{"remove", []string{"remove: {field: legacy}"}, `{"_id":1,"legacy":7,"b":1}`, `{"_id":1,"b":1}`},
		{"remove with a default", []string{"remove: {field: legacy, default: \"\"}"}, `{"_id":1,"legacy":"x"}`, `{"_id":1}`},
		{"wrap", []string{"wrap: {field: m}"}, `{"_id":1,"m":"x"}`, `{"_id":1,"m":["x"]}`},
		{"split", []string{"split: {field: v, to: [epoch, upstream], separator: \":\", rest: true}"}, `{"_id":1,"v":"1:2.0"}`, `{"_id":1,"epoch":"1","upstream":"2.0"}`},
		{"compute", []string{"compute: {from: [price], to: [cents], up: {cents: int(math.round(price * 100.0))}, down: {price: double(cents) / 100.0}}"},
			`{"_id":1,"price":12.5}`, `{"_id":1,"cents":1250}`},
		{"in a list", []string{"each: {field: l, match: n, operations: [add: {field: ok, default: false}]}"}, `{"_id":1,"l":[{"n":"a"},{"n":"b","ok":true}]}`, `{"_id":1,"l":[{"n":"a","ok":false},{"n":"b","ok":true}]}`},
		{"within an object", []string{"add: {field: o.region, default: us}"}, `{"_id":1,"o":{"a":1}}`, `{"_id":1,"o":{"a":1,"region":"us"}}`},
		{"without the object", []string{"add: {field: o.region, default: us}"}, `{"_id":1}`, `{"_id":1}`},
		{"several", []string{"rename: {from: a, to: b}", "add: {field: region, default: us}", "copy: {from: b, to: c}"}, `{"_id":1,"a":2}`, `{"_id":1,"b":2,"region":"us","c":2}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			change, _, err := lenstest.Of(t, tc.ops...).InPlace("items")
			if err != nil {
				t.Fatal(err)
			}
			doc := lenstest.JSON(t, tc.old)
			for _, when := range []string{"first", "second"} {
				if doc, err = change(doc); err != nil || !bytes.Equal(doc, lenstest.JSON(t, tc.new)) {
					t.Fatalf("%s time: %s, %v; want %s", when, lenstest.Text(doc), err, tc.new)
				}
			}
		})
	}
}

func TestInPlaceErrors(t *testing.T) {
	t.Parallel()
	change, _, err := lenstest.Of(t, "add: {field: schema, value: 2}").InPlace("items")
	if err != nil {
		t.Fatal(err)
	}
	// Not ours to replace: the lens declares that only the lens decides on it.
	if doc, err := change(lenstest.JSON(t, `{"_id":1,"schema":1}`)); err == nil {
		t.Errorf("another constant became %s", lenstest.Text(doc))
	}
	if change, _, err = lenstest.Of(t, "rename: {from: a, to: b}", "add: {field: region, default: us}").InPlace("items"); err != nil {
		t.Fatal(err)
	}
	if doc, err := change(lenstest.JSON(t, `{"_id":1,"a":2,"region":"eu"}`)); err == nil {
		t.Errorf("a document of both sides became %s", lenstest.Text(doc))
	}
}

func TestInPlaceRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"key: {from: \"a/{x}\", to: \"b/{x}\"}\noperations: []", "key changes names"},
		{"kinds: {from: other, to: items}\noperations: []", "kinds names other"},
		{"kinds: {from: items, to: other}\noperations: []", "kinds names other"},
		{"operations:\n  - fanOut: {field: l, as: list, kind: parts, key: \"{_key}/{id}\", id: n}", "fanOut makes records of parts"},
		{"operations:\n  - gather: {kind: ratings, field: rating, as: object, key: \"{_key}/rating\"}", "gather takes records of ratings in"},
		{"operations:\n  - reference: {field: source, kind: self}", "reference follows keys"},
	} {
		l, err := lens.Parse("test.yaml", []byte(tc.text))
		if err != nil {
			t.Fatalf("%v in\n%s", err, tc.text)
		}
		if _, _, err := l.InPlace("items"); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "test.yaml: ") {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	_, one, _ := lenstest.Of(t, "add: {field: a, value: 1}").InPlace("items")
	_, two, _ := lenstest.Of(t, "add: {field: a, value: 2}").InPlace("items")
	if one == two {
		t.Errorf("two lenses have the revision %s", one)
	}
}
