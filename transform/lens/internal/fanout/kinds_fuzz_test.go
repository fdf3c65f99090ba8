package fanout_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// FuzzKinds: no text and no document make a lens over several kinds panic, what it makes
// is well-formed, and it comes back as the same bytes.
func FuzzKinds(f *testing.F) {
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "k/1"}, {Key: "lines", Value: bson.A{bson.D{{Key: "sku", Value: "a"}}, bson.D{{Key: "sku", Value: 5}}}}, {Key: "notes", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "plan", Value: bson.D{}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		lenstest.Orders(linesByOrder), lenstest.Orders(linesByIndex), lenstest.Orders(linesByID), lenstest.Orders(linesByContent), lenstest.Orders(notesAsMap, planAsObject),
		lenstest.Orders(strings.Replace(notesAsMap, "{_key}/{id}\"", "{_key}/{id}\", value: v", 1)), lenstest.Secrets,
		"key: {from: '{k:int}', to: {v: 2, k: 'n/{k}'}}\n" + lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: {of: "{_key}", n: "{index}"}, parent: order}`),
		lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{_key:objectId}/{id:objectId}", id: _id, order: at}`, "reference: {field: plan, kind: self}"),
		"key: {from: 'k/{k}', to: 'n/{r}/{k}', with: {r: x}}\noperations: [{reference: {field: plan, kind: self, optional: true}}]",
	} {
		f.Add([]byte(text), []byte(doc))
	}
	f.Fuzz(func(t *testing.T, text, doc []byte) {
		l, err := lens.Parse("fuzz.yaml", text)
		if err != nil {
			return
		}
		key, err := record.KeyOfDoc(doc)
		if err != nil || bson.Raw(doc).Validate() != nil {
			return
		}
		s := l.Spec("old", "new")
		old := []record.Record{{Kind: "old", Key: key, Doc: doc}}
		now, err := lenstest.Take(s.Up, old, nil)
		if err != nil {
			return
		}
		for _, r := range now {
			if err := r.Doc.Validate(); err != nil {
				t.Fatalf("%s\nmade %x: %v", text, []byte(r.Doc), err)
			}
			if got, err := record.KeyOfDoc(r.Doc); err != nil || got != r.Key {
				t.Fatalf("%s\nmade %s under the key %s (%v)", text, r.Doc, r.Key, err)
			}
		}
		if _, err := lenstest.Take(s.Down, now, old); err != nil {
			t.Fatalf("%s\nmade of %s\n%s\nwhich cannot go back: %v", text, bson.Raw(doc), lines(now), err)
		}
	})
}
