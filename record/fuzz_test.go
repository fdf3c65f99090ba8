package record_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzKey: any _id has a key of its own that stays what it is, or none. Keys come from collections of
// applications, and from plans and checkpoints.
func FuzzKey(f *testing.F) {
	for _, v := range []any{"name", int32(5), 5.0, -0.5, bson.D{{Key: "a", Value: bson.A{int64(1)}}}, bson.NewObjectID(), bson.Symbol("s"), bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "n", Value: 1.0}}}, decimal(f, "1.10"), bson.Binary{Subtype: 4, Data: []byte("b")}} {
		typ, data, err := bson.MarshalValue(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(typ), data)
	}
	f.Add(byte(bson.TypeString), []byte{255, 255, 255, 255})
	f.Add(byte(bson.TypeCodeWithScope), []byte{1})
	other := key(f, "m").Value()
	f.Fuzz(func(t *testing.T, typ byte, data []byte) {
		v := bson.RawValue{Type: bson.Type(typ), Value: data}
		raw := record.Key(append([]byte{typ}, data...)) // as a plan has it, which may be anything
		_, _ = raw.String(), record.CheckKey(raw)
		if record.CompareValues(v, other) != -record.CompareValues(other, v) {
			t.Error("the order of two keys depends on which comes first")
		}
		k, err := record.KeyOf(v)
		if err != nil {
			return
		}
		if record.CompareValues(k.Value(), k.Value()) != 0 {
			t.Errorf("%x comes before itself", string(k))
		}
		if n := len(k.String()); n > 2<<10 {
			t.Errorf("%d bytes are shown of a key", n)
		}
		if v.Validate() != nil {
			return
		}
		if again, err := record.KeyOf(k.Value()); err != nil || again != k {
			t.Errorf("the key %x of %x has the key %x: %v", string(k), data, string(again), err)
		}
	})
}

// FuzzStored: moving the _id to the front keeps every field, and changes nothing of what is no
// document.
func FuzzStored(f *testing.F) {
	doc, err := bson.Marshal(bson.D{{Key: "a", Value: 1}, {Key: "_id", Value: "x"}, {Key: "b", Value: bson.D{{Key: "_id", Value: 2}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(doc))
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Add([]byte(doc[:9]))
	f.Fuzz(func(t *testing.T, b []byte) {
		doc := bson.Raw(b)
		out := record.Stored(doc)
		if len(out) != len(doc) {
			t.Fatalf("%d bytes became %d", len(doc), len(out))
		}
		if doc.Validate() == nil && out.Validate() != nil {
			t.Errorf("%x became %x", doc, out)
		}
		_, _ = record.KeyOfDoc(out)
	})
}

// FuzzVersion: the text of a version, in marks, plans and checkpoints, reads as what it was written of.
func FuzzVersion(f *testing.F) {
	f.Add("0123456789abcdef0123456789abcdef")
	f.Add("0123456789ABCDEF0123456789ABCDE")
	f.Fuzz(func(t *testing.T, text string) {
		var v, again record.Version
		if v.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(v.String())); err != nil || again != v {
			t.Errorf("%s is read as %s: %v", v, again, err)
		}
	})
}
