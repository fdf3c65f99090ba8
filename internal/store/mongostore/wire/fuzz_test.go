package wire

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// FuzzReply: a reply of a server is cut into documents that lie within it, or is an error.
func FuzzReply(f *testing.F) {
	whole, err := bson.Marshal(bson.D{{Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: bson.A{bson.D{{Key: "_id", Value: 1}}, bson.D{}}}, {Key: "id", Value: int64(7)}, {Key: "atClusterTime", Value: bson.Timestamp{T: 1, I: 2}}}}, {Key: "ok", Value: 1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(whole))
	f.Add([]byte(whole[:40]))
	f.Add([]byte{255, 255, 255, 255, 3})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ParseReply(raw)
		if err != nil {
			return
		}
		n := 0
		if err := Each(r.Docs, func(doc []byte) error {
			n += len(doc)
			_ = bson.Raw(doc).Validate()
			return nil
		}); err == nil && n > len(raw) {
			t.Errorf("%d bytes of documents in a reply of %d", n, len(raw))
		}
	})
}
