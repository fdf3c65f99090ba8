package sealed

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzEnvelope: no bytes in a database are taken for a record that nobody with a key has written.
func FuzzEnvelope(f *testing.F) {
	keys, err := NewKeys("a001", Key{Name: "a001", Bytes: make([]byte, KeySize)})
	if err != nil {
		f.Fatal(err)
	}
	st := State{Key: "a001", Under: map[string]string{"a001": keys.named["a001"].check}, Whole: true}
	w := writing{Sealer: New("v1", func() *Keys { return keys }, nil), state: st, name: "a001", key: keys.named["a001"]}
	key := record.StringKey("x")
	plain, err := bson.Marshal(bson.D{{Key: "_id", Value: "x"}, {Key: "secret", Value: 1}})
	if err != nil {
		f.Fatal(err)
	}
	real, err := w.seal(record.Token{Kind: "users"}, key, plain)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(real))
	f.Add([]byte(plain))
	short, err := bson.Marshal(bson.D{{Key: Field, Value: bson.Binary{Subtype: subtype, Data: []byte{format, 'a', '0', '0', '1'}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(short))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, stored []byte) {
		e, is := envelopeOf(stored)
		if !is {
			e.name = Off
		}
		doc, err := e.open(keys, st, "v1", "users", record.Record{Key: key, Doc: stored})
		if err == nil && string(doc) != string(plain) {
			t.Errorf("%x is taken for the record %s", stored, doc)
		}
		if other, err := e.open(keys, st, "v1", "users", record.Record{Key: record.StringKey("y"), Doc: stored}); err == nil {
			t.Errorf("the record x is taken for y: %s", other)
		}
		_ = w.current("users", stored, plain)
	})
}

// FuzzState: no State that a login of the database can write is trusted where a key is active.
func FuzzState(f *testing.F) {
	keys, err := NewKeys("a001", Key{Name: "a001", Bytes: make([]byte, KeySize)})
	if err != nil {
		f.Fatal(err)
	}
	signed := State{Key: "a001", Under: map[string]string{"a001": keys.named["a001"].check}, Whole: true, Clear: map[string][]string{"users": {"email"}}}
	if err := signed.sign(keys, "ours"); err != nil {
		f.Fatal(err)
	}
	for _, s := range []State{signed, {Key: Off, Under: map[string]string{Off: ""}, Whole: true}, {}} {
		b, err := bson.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, mark []byte) {
		var s State
		if bson.Unmarshal(mark, &s) != nil {
			return
		}
		_, _, _, _ = s.normal(keys), s.lacks(keys), s.fresh(keys, 1), wanted(s.InUse()...)
		if s.trusted(keys, "ours") == nil && (!s.Same(signed) || s.Count != signed.Count) {
			t.Errorf("%+v is trusted", s)
		}
		if s.trusted(keys, "another's") == nil {
			t.Errorf("%+v is trusted in another namespace", s)
		}
	})
}
