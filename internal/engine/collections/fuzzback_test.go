package collections

import (
	"bytes"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzBack: whatever indexes and options two collections have, the older one has nothing left to
// follow after it followed.
func FuzzBack(f *testing.F) {
	index := func(more ...bson.E) bson.D {
		return append(bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "name", Value: "a_1"}}, more...)
	}
	for _, pair := range [][2]bson.D{
		{index(), index(bson.E{Key: "unique", Value: true})},
		{index(bson.E{Key: "expireAfterSeconds", Value: 60}), index(bson.E{Key: "expireAfterSeconds", Value: 90}, bson.E{Key: "hidden", Value: true})},
		{index(), {{Key: "key", Value: bson.D{{Key: "b", Value: "2dsphere"}}}, {Key: "name", Value: "b"}, {Key: "expireAfterSeconds", Value: int64(5)}}},
		{{{Key: "key", Value: 1}, {Key: "name", Value: "x"}}, {{Key: "validator", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "validationLevel", Value: "moderate"}}},
		{{}, index(bson.E{Key: "expireAfterSeconds", Value: "x"}, bson.E{Key: "partialFilterExpression", Value: bson.D{{Key: "$expr", Value: 1}}})},
	} {
		was, wasErr := bson.Marshal(pair[0])
		is, isErr := bson.Marshal(pair[1])
		if wasErr != nil || isErr != nil {
			f.Fatal(wasErr, isErr)
		}
		f.Add([]byte(was), []byte(is), []byte(was), []byte(is), true, true)
		f.Add([]byte(is), []byte(was), []byte(is[:len(is)-2]), []byte(was), false, true)
	}
	f.Fuzz(func(t *testing.T, wasIndex, isIndex, wasOptions, isOptions []byte, ours, sameVersion bool) {
		same := func(s record.Shape) (record.Shape, error) { return s, nil }
		carry := Carry{From: "orders", Shape: same, Back: same}
		was := record.Shape{Indexes: []bson.Raw{wasIndex}, Options: wasOptions}
		is := record.Shape{Indexes: []bson.Raw{isIndex}, Options: isOptions}
		var b backKind
		if ours {
			b.kind.Carried = names(was.Indexes)
		}
		if err := b.compare(carry, was, is, nil, sameVersion); err != nil {
			t.Fatalf("shapes that map to themselves: %v", err)
		}
		if bytes.Equal(wasIndex, isIndex) && len(b.drop)+len(b.build) > 0 {
			t.Errorf("equal indexes: %q are dropped and %s built", b.drop, b.build)
		}
		if bytes.Equal(wasOptions, isOptions) && len(b.differ) > 0 {
			t.Errorf("equal options differ in %q", b.differ)
		}
		for _, ix := range b.build {
			if bson.Unmarshal(ix, new(bson.D)) != nil {
				continue // a database refuses to build it
			}
			// An index that is built here deletes nothing until its version is active.
			if seconds, ok := record.ExpiryOf(record.Shape{Indexes: []bson.Raw{ix}})[record.IndexName(ix)]; ok && seconds != record.NeverExpires {
				t.Errorf("%s is built, and deletes after %d seconds", ix, seconds)
			}
		}
		// What a database has after these changes.
		var now record.Shape
		for _, ix := range was.Indexes {
			if !slices.Contains(b.drop, record.IndexName(ix)) {
				now.Indexes = append(now.Indexes, ix)
			}
		}
		now.Indexes = append(now.Indexes, b.build...)
		if now.Options = was.Options; b.options != nil {
			now.Options = b.options
		}
		again := backKind{kind: b.kind}
		again.kind.Carried = append(slices.Clone(b.kind.Carried), names(b.build)...)
		if err := again.compare(carry, now, is, nil, sameVersion); err != nil || len(again.drop)+len(again.build)+len(again.differ) > 0 {
			t.Errorf("%s of %s and %s: %q are dropped, %s built, and %q differ again: %v", now.Indexes, was.Indexes, is.Indexes, again.drop, again.build, again.differ, err)
		}
	})
}
