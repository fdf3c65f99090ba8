package lens_test

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

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
			return text(strings.ToLower(in[0].StringValue())), nil
		},
		Down: func(in []bson.RawValue) ([]bson.RawValue, error) {
			return text(strings.ToUpper(in[0].StringValue())), nil
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
	//  hook lower: CODE is "Abc" (string), would become "abc" (string) and come back as "ABC" (string): the value cannot be converted so that the reverse gives it again
}

func text(s string) []bson.RawValue {
	t, v, _ := bson.MarshalValue(s)
	return []bson.RawValue{{Type: t, Value: v}}
}
