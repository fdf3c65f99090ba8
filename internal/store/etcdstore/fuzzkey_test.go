package etcdstore

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzKeyText: a key below a collection's prefix is the key of a record or an error, and that of each
// record is read as it was written. Any user with writes below the prefix may choose it.
func FuzzKeyText(f *testing.F) {
	for _, v := range []any{"name", "a\x00b", "", int32(5), bson.D{{Key: "a", Value: "x"}}} {
		typ, data, err := bson.MarshalValue(v)
		if err != nil {
			f.Fatal(err)
		}
		k, err := record.KeyOf(bson.RawValue{Type: bson.Type(typ), Value: data})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(keyText(k))
	}
	f.Add("")
	f.Add(string([]byte{isString, 0, 0, isString}))
	f.Add("\xff\xff\xff\xff" + string([]byte{isOther}))
	f.Fuzz(func(t *testing.T, text string) {
		k, err := keyFrom(text)
		if err != nil {
			return
		}
		// Keys that no record has come from writers other than ours.
		if record.CheckKey(k) != nil {
			return
		}
		if again, err := keyFrom(keyText(k)); err != nil || again != k {
			t.Errorf("%q is the key %q, which is read again as %q: %v", text, string(k), string(again), err)
		}
	})
}
