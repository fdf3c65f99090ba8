package copies_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
)

// TestForeignNames: a region cannot put a copy under the name of another region. One that is there goes.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		const own, foreign, none, late = "regions/eu/books/b", "regions/us/books/b", "others/o/books/b", "regions/asia/books/b"
		for _, name := range []string{own, foreign, none} {
			o.set(name, "eu's")
		}
		key := region.CopyKey("eu", foreign)
		old, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "title", Value: "old"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Store.Write(t.Context(), []record.Mutation{{Kind: region.CopiesKind("books"), Key: record.StringKey(key), Doc: old}}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		f := followKind(o, s, region.Kind{Collection: "regions"})
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(time.Minute)
		o.set(late, "eu's")
		time.Sleep(time.Minute)
		if got := s.copied(t, "eu"); !maps.Equal(got, map[string]string{own: "eu's"}) {
			t.Errorf("copied %v", got)
		}
		if r := f.Report(); r.Left != 3 || !r.Away.IsZero() || !strings.Contains(r.Example, none) {
			t.Errorf("reported %+v", r)
		}
		o.set(late, "")
		o.set(none, "")
		time.Sleep(time.Minute)
		if r := f.Report(); r.Left != 1 || r.Example != foreign+`: its name has the region "us"` {
			t.Errorf("after deletes reported %+v", r)
		}
		stop()
		<-ended
	})
}
