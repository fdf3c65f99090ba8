package transform

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// FuzzLineage: an entry of a lineage, which lies in a database, is read or is an error. One that was
// read says the same when it is written again.
func FuzzLineage(f *testing.F) {
	r := ref{"users", record.StringKey("x")}
	f.Add([]byte(descent{group: "g", waits: "\xff"}.doc(r)))
	f.Add([]byte(family{members: []ref{r}, targets: []ref{{"a", "\x10\x01\x00\x00\x00"}, r}}.doc("g")))
	wrong, err := bson.Marshal(bson.D{{Key: fieldGroup, Value: "?"}, {Key: fieldMembers, Value: bson.D{{Key: "users", Value: "x"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(wrong))
	f.Fuzz(func(t *testing.T, doc []byte) {
		_, _ = readTarget(doc)
		if bson.Raw(doc).Validate() != nil {
			_, _ = readDescent(doc)
			_, _ = readFamily(doc)
			return
		}
		if d, err := readDescent(doc); err == nil {
			if again, err := readDescent(d.doc(r)); err != nil || again != d {
				t.Errorf("%+v is read again as %+v: %v", d, again, err)
			}
		}
		if g, err := readFamily(doc); err == nil {
			if again, err := readFamily(g.doc("g")); err != nil || !again.equal(g) {
				t.Errorf("%+v is read again as %+v: %v", g, again, err)
			}
		}
	})
}
