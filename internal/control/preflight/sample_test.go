package preflight

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// TestSampleIsBounded: a sample of large records is as much as may be held in memory, and one
// that is too large does not keep the others out.
func TestSampleIsBounded(t *testing.T) {
	t.Parallel()
	doc := func(id string, size int) bson.D {
		return bson.D{{Key: "_id", Value: id}, {Key: "section", Value: "s"}, {Key: "filler", Value: make([]byte, size)}}
	}
	docs := []any{doc("!a", 9<<20), doc("!b", 9<<20)}
	for i := range 20 {
		docs = append(docs, doc(fmt.Sprint(i), 1<<20))
	}
	w := newProofWorld(t, nil, nil, docs, ordersSpec(t, ordersLens))
	up, err := w.registry.Direction("v1", "v2")
	w.check(err)
	s := sampler{source: w.db["v1"], dir: up, src: syncer.Tokens(w.record, "v1"), epoch: w.record.Epoch, perSpec: 100, shortRange: true}
	f, err := s.sample(t.Context())
	w.check(err)
	size := 0
	for _, r := range f.records {
		size += len(r.Doc)
	}
	if n := len(groupsOf(f.records, up.GroupOf)); size > tripBytes || size < tripBytes/2 || n < 4 {
		t.Errorf("a sample of %d groups has %d bytes", n, size)
	}
	if f.version.IsZero() {
		t.Error("the sample has no version")
	}
}

// TestInTurns: of many kinds each has its turn before one has a second.
func TestInTurns(t *testing.T) {
	t.Parallel()
	id := func(spec int, name string) transform.GroupID { return transform.GroupID{Spec: spec, Name: name} }
	got := fmt.Sprint(inTurns([]transform.GroupID{id(0, "a"), id(0, "b"), id(0, "c"), id(1, "a"), id(2, "a"), id(2, "b")}))
	if want := "[{0 a} {1 a} {2 a} {0 b} {2 b} {0 c}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestGroupsEach: few kinds are tried at many places, and of a thousand each is tried at all.
func TestGroupsEach(t *testing.T) {
	t.Parallel()
	for kinds, want := range map[int]int{0: tripGroups, 1: tripGroups, 100: tripGroups, 200: 10, 1000: 2, 100000: tripLeast} {
		if got := groupsEach(kinds); got != want {
			t.Errorf("%d of each of %d kinds, want %d", got, kinds, want)
		}
	}
}
