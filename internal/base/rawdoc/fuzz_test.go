package rawdoc

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// FuzzLookup: a path leads through any bytes. In a valid document it leads where the driver's own
// Lookup finds the value. A valid document decodes or is an error.
func FuzzLookup(f *testing.F) {
	whole := marshal(f, bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: bson.A{"x", bson.D{{Key: "c", Value: "y"}}}}}}, {Key: "s", Value: "z"}})
	for _, path := range []string{"a.b.1.c", "a.b.0", "s", "s.a", ".", ""} {
		f.Add([]byte(whole), path)
	}
	f.Add([]byte("\x0d\x00\x00\x00\x03a\x00\x00\x00\x00\x00\x00"), "a.b")
	f.Add([]byte(nested(MaxDepth+1)), "a")
	f.Fuzz(func(t *testing.T, doc []byte, text string) {
		path := strings.Split(text, ".")
		got := Lookup(doc, path...)
		deep := DocTooDeep(doc)
		var v struct {
			A struct {
				B []struct{ C string }
			}
			S string
		}
		_ = Unmarshal(doc, &v)
		if Validate(doc) != nil {
			return
		}
		if deep {
			t.Error("a document that is too deep is valid")
		}
		if want := bson.Raw(doc).Lookup(path...); !got.Equal(want) {
			t.Errorf("%q is %v, want %v", path, got, want)
		}
	})
}
