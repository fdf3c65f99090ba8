package lint

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestEditDamagedText: the driver accepts a string that lacks its final zero, and panics when it reads
// it.
func TestEditDamagedText(t *testing.T) {
	t.Parallel()
	doc := bson.Raw("\x0c\x00\x00\x00\x02s\x00\x00\x00\x00\x00\x00")
	if text := editAt(doc, []string{"s"}).Lookup("s").StringValue(); text != "~" {
		t.Errorf("it becomes %q", text)
	}
}
