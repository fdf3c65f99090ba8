package scalar

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// TestAnyIsCarried: a value of any type is the same again, also of those whose type is no
// character of a text.
func TestAnyIsCarried(t *testing.T) {
	t.Parallel()
	for _, v := range []any{bson.MinKey{}, bson.MaxKey{}, "text", int32(5), 1.5, bson.D{{Key: "a", Value: bson.MinKey{}}}, bson.NewObjectID(), bson.Null{}} {
		typ, value, err := bson.MarshalValue(v)
		if err != nil {
			t.Fatal(err)
		}
		text, err := IDAny.Read(bson.RawValue{Type: bson.Type(typ), Value: value}, ReadExact)
		if err != nil {
			t.Fatal(err)
		}
		if got, again := IDAny.AppendTo(nil, text); got != bson.Type(typ) || !bytes.Equal(again, value) {
			t.Errorf("%T is %s %x again, want %s %x", v, edit.TypeName(got), again, edit.TypeName(bson.Type(typ)), value)
		}
	}
}
