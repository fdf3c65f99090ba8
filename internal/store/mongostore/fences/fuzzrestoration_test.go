package fences

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestValidatorWithoutUTF8: such a validator would come back as another one.
func TestValidatorWithoutUTF8(t *testing.T) {
	t.Parallel()
	for value, fits := range map[string]bool{"\x95": false, "\ufffd": true, `\ufffd`: true, "ä<": true} {
		raw, err := bson.Marshal(bson.D{{Key: "a", Value: bson.D{{Key: "$ne", Value: value}, {Key: "$regex", Value: bson.Regex{Pattern: "x", Options: "mi"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := (Restoration{Validator: raw}).text(); (err == nil) != fits {
			t.Errorf("%q is noted as %s: %v", value, text, err)
		}
	}
}

// FuzzRestoration: what a fence has noted of a validator reads the same when it is written again.
func FuzzRestoration(f *testing.F) {
	f.Add(`{"validator":{"a":{"$exists":true}},"validationLevel":"strict","validationAction":"error"}`)
	f.Add(`{"validator":`)
	f.Add(`{"alidator":{"a":{"$existsdatrue}},"v`)  // the library never returned
	f.Add("{\"validator\":{\"\":{\"\x95\":true}}}") // no UTF-8
	f.Fuzz(func(t *testing.T, text string) {
		r, err := RestorationFrom(text)
		if err != nil || text == "" {
			return
		}
		first, err := r.text()
		if err != nil {
			return
		}
		again, err := RestorationFrom(first)
		if err != nil {
			t.Fatalf("%s is not read again: %v", first, err)
		}
		if second, err := again.text(); err != nil || second != first {
			t.Errorf("%s is read again as %s: %v", first, second, err)
		}
	})
}
