package wire

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestDeepDocument(t *testing.T) {
	t.Parallel()
	for levels, deep := range map[int]bool{250: false, 600: true} {
		doc := bson.D{{Key: "a", Value: 1}}
		for range levels - 1 {
			doc = bson.D{{Key: "_id", Value: doc}}
		}
		// Readers of the document recurse, and a stack that overflows ends the process.
		if _, err := LayoutOf(MustMarshal(doc), true); errors.Is(err, ErrMalformed) != deep {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}

// TestFirst: a damaged batch is an error. It must not look like the absence of the document.
func TestFirst(t *testing.T) {
	t.Parallel()
	reply := func(batch any) bson.Raw {
		return MustMarshal(bson.D{{Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: batch}}}})
	}
	if doc, err := First(reply(bson.A{})); doc != nil || err != nil {
		t.Errorf("an empty batch: %v, %v", doc, err)
	}
	if doc, err := First(reply(bson.A{bson.D{{Key: "a", Value: 1}}, bson.D{}})); err != nil || doc.Lookup("a").AsInt64() != 1 {
		t.Errorf("a batch of two: %v, %v", doc, err)
	}
	for name, raw := range map[string]bson.Raw{
		"number":    reply(7),
		"texts":     reply(bson.A{"x"}),
		"no cursor": MustMarshal(bson.D{}),
		"no bytes":  bson.Raw("\x11\x00\x00\x00\x03cursor\x00\x00\x00\x00\x00\x00"),
	} {
		if doc, err := First(raw); err == nil {
			t.Errorf("%s: %v", name, doc)
		}
	}
}
