package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/adapt"
)

// backends are where the stored version is.
var backends = map[string]func(t testing.TB) database{
	"memory":  func(testing.TB) database { return memstore.New() },
	"MongoDB": mongo,
}

// TestBothFaces: writers of v1, through the adapter, and of v2 count in the same records
// and replace each other's parts. No count is lost, no part is an orphan, and each reader
// of v1 sees states that were.
func TestBothFaces(t *testing.T) {
	t.Parallel()
	for label, open := range backends {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			f := newFace(t, open(t), split(t), "v2", "v1", adapt.Config{Leads: map[string]string{"wholes": "heads"}})
			var counts [2]atomic.Int32
			for i := range counts {
				put(t, f.adapter, "wholes", whole(fmt.Sprint("w", i), 0, "0"))
			}
			writers, ctx := errgroup.WithContext(t.Context())
			for worker := range 4 {
				writers.Go(func() error {
					for i := range 25 {
						n := (worker + i) % len(counts)
						write := countV1
						if worker%2 == 1 {
							write = countV2
						}
						switch err := write(ctx, f, fmt.Sprint("w", n)); {
						case err == nil:
							counts[n].Add(1)
						case !errors.Is(err, record.ErrMismatch):
							return err
						}
					}
					return nil
				})
			}
			reading, stop := context.WithCancel(t.Context())
			readers, reading := errgroup.WithContext(reading)
			readers.Go(func() error {
				for reading.Err() == nil {
					recs, err := f.adapter.List(reading, "wholes", "", "", 0)
					if err != nil {
						if errors.Is(err, record.ErrMismatch) || reading.Err() != nil {
							continue // too fast to be read
						}
						return err
					}
					for _, r := range recs {
						// Every writer writes the count into the active part, too.
						if n, text := r.Doc.Lookup("n").Int32(), r.Doc.Lookup("body", "text").StringValue(); fmt.Sprint(n) != text {
							return fmt.Errorf("%s shows a count of %d with a part of %s", r.Key, n, text)
						}
					}
				}
				return nil
			})
			err := writers.Wait()
			stop()
			if err := errors.Join(err, readers.Wait()); err != nil {
				t.Fatal(err)
			}
			for i := range counts {
				rec, err := f.adapter.Get(t.Context(), "wholes", fmt.Sprint("w", i))
				if err != nil || rec.Doc.Lookup("n").Int32() != counts[i].Load() || counts[i].Load() == 0 {
					t.Errorf("%s after %d acknowledged counts, %v", rec.Doc, counts[i].Load(), err)
				}
			}
		})
	}
}

// countV1 counts a whole through the adapter.
func countV1(ctx context.Context, f face, name string) error {
	rec, err := f.adapter.Get(ctx, "wholes", name)
	if err != nil {
		return err
	}
	n := int(rec.Doc.Lookup("n").Int32()) + 1
	next := made("wholes", whole(name, n, fmt.Sprint(n)))
	return f.adapter.Write(ctx, []record.Mutation{{
		Kind: "wholes", Key: rec.Key, Doc: next.Doc, Match: &record.Match{Path: "n", Value: rec.Doc.Lookup("n")},
	}})
}

// countV2 counts a head, and makes a new active part.
func countV2(ctx context.Context, f face, name string) error {
	rec, err := f.stored.Get(ctx, "heads", name)
	if err != nil {
		return err
	}
	n := rec.Doc.Lookup("n").Int32() + 1
	active := fmt.Sprintf("v%d", n)
	head := made("heads", bson.D{{Key: "_id", Value: name}, {Key: "n", Value: n}, {Key: "active", Value: active}})
	added := made("parts", bson.D{{Key: "_id", Value: name + "/" + active}, {Key: "body", Value: bson.D{{Key: "text", Value: fmt.Sprint(n)}}}})
	return f.stored.Write(ctx, []record.Mutation{
		{Kind: "heads", Key: rec.Key, Doc: head.Doc, Match: record.MatchDoc(rec.Doc)},
		{Kind: "parts", Key: record.StringKey(name + "/" + rec.Doc.Lookup("active").StringValue())},
		{Kind: "parts", Key: added.Key, Doc: added.Doc},
	})
}

// TestNoOrphans: a v1 delete and a v2 writer that adds a part, and changes the head, meet:
// either the part goes with the delete, or its writer finds no head.
func TestNoOrphans(t *testing.T) {
	t.Parallel()
	for label, open := range backends {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			f := newFace(t, open(t), split(t), "v2", "v1", adapt.Config{Leads: map[string]string{"wholes": "heads"}})
			for round := range 20 {
				name := fmt.Sprint("w", round)
				put(t, f.adapter, "wholes", whole(name, 0, "0"))
				head, err := f.stored.Get(t.Context(), "heads", name)
				if err != nil {
					t.Fatal(err)
				}
				both, ctx := errgroup.WithContext(t.Context())
				both.Go(func() error {
					return f.adapter.Write(ctx, []record.Mutation{{Kind: "wholes", Key: record.StringKey(name), Exists: true}})
				})
				both.Go(func() error {
					next := made("heads", bson.D{{Key: "_id", Value: name}, {Key: "n", Value: int32(1)}, {Key: "active", Value: "main"}})
					part := made("parts", bson.D{{Key: "_id", Value: name + "/late"}, {Key: "body", Value: 1}})
					err := f.stored.Write(ctx, []record.Mutation{
						{Kind: "heads", Key: head.Key, Doc: next.Doc, Match: record.MatchDoc(head.Doc)},
						{Kind: part.Kind, Key: part.Key, Doc: part.Doc, Absent: true},
					})
					if errors.Is(err, record.ErrNotFound) {
						return nil
					}
					return err
				})
				if err := both.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			parts, err := f.stored.List(t.Context(), "parts", "", "", 0)
			if err != nil || len(parts) != 0 {
				t.Errorf("orphans: %s, %v", strings.Fields(names(parts)), err)
			}
		})
	}
}
