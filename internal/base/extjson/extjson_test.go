package extjson

import (
	"bytes"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestPrintedRecordsKeepTheirTypes reads what is printed again.
func TestPrintedRecordsKeepTheirTypes(t *testing.T) {
	t.Parallel()
	doc, err := bson.Marshal(bson.D{
		{Key: "_id", Value: bson.NewObjectID()}, {Key: "int", Value: int32(5)}, {Key: "long", Value: int64(5)}, {Key: "large", Value: int64(1) << 40},
		{Key: "double", Value: 5.0}, {Key: "date", Value: bson.DateTime(1500)}, {Key: "null", Value: nil}, {Key: "<&>\"", Value: "<&>\"\n"},
		{Key: "list", Value: bson.A{bson.D{}, bson.A{}, bson.D{{Key: "a", Value: bson.A{int64(1), true}}}}},
		{Key: "binary", Value: bson.Binary{Data: []byte("x")}}, {Key: "regex", Value: bson.Regex{Pattern: "a}", Options: "i"}}, {Key: "min", Value: bson.MinKey{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{0, 100, OneLine} {
		text := Doc(doc, width)
		var again bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(text), false, &again); err != nil || !bytes.Equal(again, doc) {
			t.Errorf("%v\n%s\nis\n%s", err, text, again)
		}
		if width == OneLine && strings.Contains(text, "\n") {
			t.Error("it is not on one line")
		}
	}
}
