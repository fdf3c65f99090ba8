package typed

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestDamagedDocument: the driver never returns for the unknown field x, a string of a negative
// length.
func TestDamagedDocument(t *testing.T) {
	t.Parallel()
	var into struct {
		In struct{ A string }
	}
	doc := bson.Raw("\x24\x00\x00\x00\x03in\x00\x1b\x00\x00\x00\x02x\x00\xf9\xff\xff\xff/00000000000000\x00\x00")
	if err := doc.Validate(); err != nil {
		t.Fatalf("the driver sees the fault at the top: %v", err)
	}
	if err := decodeStruct(doc, &into); err == nil {
		t.Errorf("it is read as %+v", into)
	}
}
