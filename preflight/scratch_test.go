package preflight

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/record/memstore"
)

// TestScratchShowsWhatWasWritten, also where reads may be older than the latest write: a proof
// would find differences that are none.
func TestScratchShowsWhatWasWritten(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ns := memstore.NewCluster(memstore.Options{Lag: 3}).Open("test")
	kind := record.KindSpec{Name: "items"}
	s, err := makeScratch(ctx, ns, newPrefix(proofPrefix), []scratchKind{{kind: "items", spec: kind}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		key := record.StringKey("a")
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}, {Key: "n", Value: i}})
		if err != nil {
			t.Fatal(err)
		}
		batch := record.Batch{Epoch: uint64(1 + i), Groups: []record.GroupWrite{{Group: "a", Writes: []record.Write{{Kind: "items", Key: key, Doc: doc}}}}}
		if res, err := s.apply(ctx, batch); err != nil || res[0].Outcome != record.Applied {
			t.Fatal(res, err)
		}
		found, err := s.all(ctx, []record.KindSpec{kind})
		if err != nil || len(found) != 1 || string(found[0].Doc) != string(doc) {
			t.Errorf("a scan after write %d: %v, %v", i, found, err)
		}
		snap, err := s.Read(ctx, record.ReadRequest{Select: []record.Selector{{Kind: "items", Key: key}}})
		if err != nil || len(snap.Records) != 1 || string(snap.Records[0].Doc) != string(doc) {
			t.Errorf("a read after write %d: %v, %v", i, snap, err)
		}
	}
}
