package lens_test

import (
	"bytes"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// FuzzIndex: an index of a source is mapped to a valid one with the same options, or is refused. A
// validator that names a field that the lens changes is never reused.
func FuzzIndex(f *testing.F) {
	l := lenstest.Of(f, "rename: {from: section, to: category}", "move: {from: homepage, to: links.homepage}", "convert: {field: size, from: int, to: long}",
		"remove: {field: legacy}", "split: {field: addr, to: [host, port], separator: ':'}", "each: {field: items, in: list, operations: [rename: {from: n, to: m}]}")
	for _, spec := range []string{
		`{"v":2,"key":{"section":1,"x":-1},"name":"section_1_x_-1","unique":true}`,
		`{"key":{"items.0.n":1},"name":"x","expireAfterSeconds":5,"collation":{"locale":"de"}}`,
		`{"key":{"x":1},"name":"x_1","partialFilterExpression":{"$and":[{"section":{"$exists":true}},{"y":{"$gt":5}}]}}`,
		`{"key":{"_fts":"text","_ftsx":1},"name":"t","weights":{"section":3},"language_override":"homepage"}`,
		`{"key":{"o.$**":1,"$**":1,".":1,"a..b":1},"name":5,"wildcardProjection":{"section":1}}`,
		`{"key":{"legacy":1},"partialFilterExpression":{"$or":{"a":1},"$nor":[5]}}`,
		`{"$jsonSchema":{"required":["section"],"additionalProperties":false}}`,
	} {
		f.Add([]byte(lenstest.JSON(f, spec)))
	}
	f.Add([]byte{8, 0, 0, 0, 3, 'a', 0, 0})
	paths := []string{"key", "name", "weights", "wildcardProjection", "columnstoreProjection", "language_override", "partialFilterExpression"}
	f.Fuzz(func(t *testing.T, spec []byte) {
		kept := bytes.Clone(spec)
		mapped, err := l.MapIndex(spec)
		old, backErr := l.UnmapIndex(spec)
		if !bytes.Equal(spec, kept) {
			t.Fatal("the spec was written to")
		}
		var ix, to bson.D
		readErr := bson.Unmarshal(spec, &ix)
		if readErr != nil && (err == nil || backErr == nil) {
			t.Errorf("%x is mapped to %s and back to %s: %v", spec, mapped, old, readErr)
		}
		if backErr == nil {
			if again, err := l.MapIndex(old); err != nil || !bytes.Equal(again, spec) {
				t.Errorf("%x comes of %s, which is mapped to %s: %v", spec, old, again, err)
			}
		}
		if err == nil {
			if err := bson.Unmarshal(mapped, &to); err != nil || len(to) != len(ix) {
				t.Fatalf("%x is mapped to %x: %v", spec, []byte(mapped), err)
			}
			for i, e := range ix {
				if e.Key != to[i].Key {
					t.Errorf("option %s became %s", e.Key, to[i].Key)
				}
				a, aErr := bson.Marshal(bson.D{e})
				b, bErr := bson.Marshal(bson.D{to[i]})
				if aErr != nil || bErr != nil || !slices.Contains(paths, e.Key) && !bytes.Equal(a, b) {
					t.Errorf("option %s became %s: %v, %v", bson.Raw(a), bson.Raw(b), aErr, bErr)
				}
			}
		}
		_, touched := l.TouchesValidator(spec)
		if readErr != nil {
			if !touched {
				t.Errorf("%x cannot be read, and is reused", spec)
			}
			return
		}
		for _, name := range []string{"section", "homepage", "size", "legacy", "addr", "items"} {
			validator, err := bson.Marshal(bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: name + ".x", Value: ix}}, ix}}})
			if err != nil {
				return
			}
			if _, touched := l.TouchesValidator(validator); !touched {
				t.Errorf("%s names %s, and is reused", bson.Raw(validator), name)
			}
		}
	})
}
