package lens_test

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

func ExampleParse() {
	l, err := lens.Parse("packages.yaml", []byte(`
lens: 1
operations:
  - rename: {from: section, to: category}
  - move: {from: homepage, to: links.homepage}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	old, _ := bson.Marshal(bson.D{{Key: "_id", Value: "bash"}, {Key: "section", Value: "shells"}, {Key: "homepage", Value: "https://gnu.org"}})
	up, err := l.Up(old, nil)
	fmt.Println(up, err)
	down, err := l.Down(up, old)
	fmt.Println(down, err)

	_, err = lens.Parse("bad.yaml", []byte("operations:\n  - renam: {from: a, to: b}"))
	fmt.Println(err)
	// Output:
	// {"_id": "bash","category": "shells","links": {"homepage": "https://gnu.org"}} <nil>
	// {"_id": "bash","section": "shells","homepage": "https://gnu.org"} <nil>
	// bad.yaml:2:5: unknown operation "renam"; allowed: rename, move, convert, add, remove, copy, wrap, unwrap, split, join, splitList, joinList, normalize, each, compute, hook, reference, fanOut, gather
}

func ExampleLens_UpMapping() {
	l, err := lens.Parse("hosts.yaml", []byte(`
operations:
  - split: {field: address, to: [host, port], separator: ":"}
  - convert: {field: port, from: string, to: int}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m := l.UpMapping()
	fmt.Println(m.Compare(transform.Condition{Path: "address", Op: transform.OpEqual, Values: []any{"db1:5432"}}))
	fmt.Println(m.Field("address"))
	_, err = m.Order("address")
	fmt.Println(err)
	// Output:
	// [{host == [db1]} {port == [5432]}] <nil>
	// [host port] <nil>
	// address: it is made into other fields in the other version (split address into host, port)
}

func ExampleWithHooks() {
	// A pair that is not exact for all texts: those it is not for are refused.
	hooks := lens.Hooks{"lower": {
		Up: func(in []bson.RawValue) ([]bson.RawValue, error) {
			return textValue(strings.ToLower(in[0].StringValue())), nil
		},
		Down: func(in []bson.RawValue) ([]bson.RawValue, error) {
			return textValue(strings.ToUpper(in[0].StringValue())), nil
		},
	}}
	l, err := lens.Parse("codes.yaml", []byte("operations:\n  - hook: {name: lower, from: [CODE], to: [code]}"), lens.WithHooks(hooks))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, code := range []string{"ABC", "Abc"} {
		doc, _ := bson.Marshal(bson.D{{Key: "CODE", Value: code}})
		fmt.Println(l.Up(doc, nil))
	}
	// Output:
	// {"code": "abc"} <nil>
	//  hook lower: CODE is "Abc" (string), would become "abc" (string), and the reverse would give "ABC" (string): the value cannot be converted so that the reverse restores it
}

func textValue(s string) []bson.RawValue {
	t, v, _ := bson.MarshalValue(s)
	return []bson.RawValue{{Type: t, Value: v}}
}

// One record of the old version becomes one under another name and two of a kind of
// their own, and comes back.
func ExampleLens_Spec() {
	l, err := lens.Parse("orders.yaml", []byte(`
lens: 1
key:
  from: orders/{order}
  to: regions/{region}/orders/{order}
  with: {region: us-west2}
operations:
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/lines/{id}", id: sku, order: position}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	spec := l.Spec("orders", "orders", lens.Managed())
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "orders/7"}, {Key: "lines", Value: bson.A{bson.D{{Key: "sku", Value: "nut"}}, bson.D{{Key: "sku", Value: "bolt"}}}}})
	old := transform.Group{Records: []record.Record{{Kind: "orders", Key: record.StringKey("orders/7"), Doc: doc}}}
	now, err := spec.Up(old, transform.Group{})
	for _, r := range now {
		fmt.Println(r.Kind, r.Doc, err)
	}
	transform.SortRecords(now)
	back, err := spec.Down(transform.Group{Records: now}, transform.Group{})
	fmt.Println(back[0].Kind, back[0].Doc, err)
	// Output:
	// orders {"_id": "regions/us-west2/orders/7"} <nil>
	// lines {"_id": "regions/us-west2/orders/7/lines/nut","position": {"$numberInt":"0"},"sku": "nut"} <nil>
	// lines {"_id": "regions/us-west2/orders/7/lines/bolt","position": {"$numberInt":"1"},"sku": "bolt"} <nil>
	// orders {"_id": "orders/7","lines": [{"sku": "nut"},{"sku": "bolt"}]} <nil>
}

func ExampleParsePattern() {
	p, err := lens.ParsePattern("projects/{project}/secrets/{secret}")
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := p.Match("projects/blue/secrets/token")
	fmt.Println(p.Variables(), values, err)
	_, err = p.Match("projects/blue")
	fmt.Println(err)
	// Output:
	// [project secret] [blue token] <nil>
	// "projects/blue" is not of the form projects/{project}/secrets/{secret}: the name does not match
}
