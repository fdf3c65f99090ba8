package record

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestDamagedDocuments: a document within a document has no bytes. The driver's Lookup panics at it.
func TestDamagedDocuments(t *testing.T) {
	t.Parallel()
	doc := bson.Raw("\x0c\x00\x00\x00\x03a\x00\x00\x00\x00\x00\x00")
	if got := ValuesAt(doc, "a.b"); len(got) != 1 || got[0].Type != bson.TypeNull {
		t.Errorf("it has the values %v", got)
	}
	if (Match{Path: "a.b", Value: bson.RawValue{Type: bson.TypeBoolean, Value: []byte{1}}}).Holds(doc) {
		t.Error("it matches true")
	}
	if !(Match{Path: "a.b", Value: bson.RawValue{Type: bson.TypeNull}}).Holds(doc) {
		t.Error("it does not match null")
	}
}

// TestDeepKey: the _id of a change comes from the server. KeyOf is recursive.
func TestDeepKey(t *testing.T) {
	t.Parallel()
	deep := bson.D{}
	for range 600 {
		deep = bson.D{{Key: "a", Value: deep}}
	}
	raw, err := bson.Marshal(deep)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := KeyOf(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}); err == nil {
		t.Errorf("it has a key of %d bytes", len(key))
	}
}
