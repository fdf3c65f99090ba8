package typed_test

import (
	"bytes"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Any bytes are a document that becomes one which comes back, or an error.
func FuzzPair(f *testing.F) {
	up, down := directions(f, compile(f, jobs()).Spec)
	for i := range 20 {
		f.Add([]byte(draw("jobs", oldDocs).Example(i)[0].Doc))
	}
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, doc []byte) {
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			return
		}
		given := bytes.Clone(doc)
		src := []record.Record{{Kind: "jobs", Key: key, Doc: doc}}
		out, err := put(t, up, src, nil)
		if !bytes.Equal(doc, given) {
			t.Fatal("the source was written to")
		}
		if err != nil {
			return
		}
		back, err := put(t, down, out, src)
		if err != nil {
			t.Fatalf("%x became %s, which does not come back: %v", doc, out[0].Doc, err)
		}
		again, err := put(t, up, back, out)
		if err != nil || !bytes.Equal(again[0].Doc, out[0].Doc) && !sameFields(again[0].Doc, out[0].Doc) {
			t.Fatalf("%s came back and became %v, %v", out[0].Doc, again, err)
		}
	})
}

// sameFields compares top-level fields in any order; a name may be there twice.
func sameFields(a, b bson.Raw) bool {
	x, errX := sortedFields(a)
	y, errY := sortedFields(b)
	return errX == nil && errY == nil && slices.Equal(x, y)
}

func sortedFields(doc bson.Raw) (out []string, err error) {
	elems, err := doc.Elements()
	for _, e := range elems {
		out = append(out, string(e))
	}
	slices.Sort(out)
	return out, err
}
