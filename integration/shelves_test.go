package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	libraryv2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// api serves both versions of the API of books by the records that are stored: v2 as they are,
// v1 with another name for the branch.
func (w *shelves) api() {
	w.t.Helper()
	read := func(text string) *lens.Lens {
		l, err := lens.Parse("lens.yaml", []byte(text))
		if err != nil {
			w.t.Fatal(err)
		}
		return l
	}
	branches, err := read(branchesLens).KeyMap()
	if err != nil {
		w.t.Fatal(err)
	}
	r := transform.NewRegistry("books")
	if err := r.Add("v1", "v2", read("operations: [rename: {from: library, to: branch}]").Spec("books", "books")); err != nil {
		w.t.Fatal(err)
	}
	show, err := r.Direction("v2", "v1")
	if err != nil {
		w.t.Fatal(err)
	}
	keep, err := r.Direction("v1", "v2")
	if err != nil {
		w.t.Fatal(err)
	}
	shown, err := adapt.New(w.store(), show, keep, adapt.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.v2 = resource.New(w.store(), resource.Config[*libraryv2.Book]{
		Kind: "books", Pattern: "books/{book}", References: []listing.Reference{{Field: "branch", Others: branches.Others}},
	})
	w.v1 = resource.New(vrunner.Over(w.store(), shown), resource.Config[*libraryv1.Book]{
		Kind: "books", Pattern: "books/{book}", References: []listing.Reference{{Field: "library", Others: branches.Others}},
	})
}

func (w *shelves) store() collectionStore {
	return collectionStore{coll: w.books.db["v1"].Collection("books")}
}

// serving is the version of places that is current, and whether their application may write it.
func (w *shelves) serving(ctx context.Context) (version string, open bool, err error) {
	d, err := w.places.record.Get(ctx)
	version, at := upgradestate.WritePlaces(d)
	return version, len(at) > 0, err
}

// makePlace adds a branch and a room, wherever that is possible now.
func (w *shelves) makePlace(ctx context.Context, _ *rand.Rand) error {
	w.mu.Lock()
	i := w.made
	w.mu.Unlock()
	for _, kind := range []string{"branches", "rooms"} {
		for {
			v, open, err := w.serving(ctx)
			if err != nil {
				return err
			}
			if !open {
				continue
			}
			doc := bson.D{{Key: "_id", Value: placeNames[kind][v](i)}, {Key: "n", Value: i}}
			if kind == "rooms" {
				doc = roomDoc(v, i)
			}
			// What is on its way at the fence is refused.
			if _, err = w.places.db[v].Collection(kind).InsertOne(context.WithoutCancel(ctx), doc); err == nil || mongo.IsDuplicateKeyError(err) {
				break
			}
			if ctx.Err() != nil {
				return err
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	return nil
}

// writeBook has a book moved to a place that was there when the traffic began, or made anew. Its
// application calls places as their service does now, and is told so before it writes.
func (w *shelves) writeBook(ctx context.Context, rng *rand.Rand) error {
	v, _, err := w.serving(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock() // so that the latest write of a book is known
	name := bookName(still + rng.IntN(moving+100))
	place := rng.IntN(w.made)
	if w.both.Load() {
		place = rng.IntN(places) // of those that are copied for certain
	}
	doc := bookDoc(name, v, place, w.both.Load())
	if now, _, err := w.serving(ctx); err != nil || now != v {
		return err // it would write a name of the version before
	}
	// Not cut off at the end: it is to be known whether it was written.
	if _, err := w.store().coll.ReplaceOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: name}}, doc, options.Replace().SetUpsert(true)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	w.holds[name] = place
	w.wrote.Add(1)
	return nil
}

// list asks for the books of a branch by either of its names, in either version of the API, and for
// a part of each, by a mask.
func (w *shelves) list(ctx context.Context, rng *rand.Rand) error {
	branch := rng.IntN(places)
	var want []string
	for i := branch; i < still; i += places {
		want = append(want, bookName(i))
	}
	// A mask has what it names and nothing else: the reference by the name that the record holds now.
	known := func(b interface {
		GetName() string
		GetTitle() string
	}, home string) error {
		if !slices.Contains(namesOf("branches", branch), home) || b.GetTitle() != "" {
			return fmt.Errorf("%s is shown as of %q, title %q, want one of %v and no title", b.GetName(), home, b.GetTitle(), namesOf("branches", branch))
		}
		return nil
	}
	for _, name := range []string{placeNames["branches"]["v1"](branch), placeNames["branches"]["v2"](branch)} {
		of := fmt.Sprintf("FIELD == %q && name < %q", name, bookName(still))
		var got1, got2 []string
		one, err := w.v1.List(ctx, &libraryv1.ListRequest{PageSize: 1000, ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"name", "library"}}, Filter: strings.Replace(of, "FIELD", "library", 1)})
		if err != nil {
			return fmt.Errorf("list by v1: %w", err)
		}
		for _, b := range one.Items {
			got1 = append(got1, b.GetName())
			if err := known(b, b.GetLibrary()); err != nil {
				return fmt.Errorf("by v1: %w", err)
			}
		}
		two, err := w.v2.List(ctx, &libraryv2.ListRequest{PageSize: 1000, ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"name", "branch"}}, Filter: strings.Replace(of, "FIELD", "branch", 1)})
		if err != nil {
			return fmt.Errorf("list by v2: %w", err)
		}
		for _, b := range two.Items {
			got2 = append(got2, b.GetName())
			if err := known(b, b.GetBranch()); err != nil {
				return fmt.Errorf("by v2: %w", err)
			}
		}
		if !slices.Equal(got1, want) || !slices.Equal(got2, want) {
			return fmt.Errorf("the books of %s are %v in v1 and %v in v2, want %v", name, got1, got2, want)
		}
		w.reads.Add(1)
	}
	return nil
}

// collectionStore shows handlers a collection of an application, to be read.
type collectionStore struct{ coll *mongo.Collection }

func (s collectionStore) Get(ctx context.Context, kind, key string) (record.Record, error) {
	doc, err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = record.ErrNotFound
	}
	return record.Record{Kind: kind, Key: record.StringKey(key), Doc: doc}, err
}

func (s collectionStore) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	cursor, err := s.coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: max(prefix, after)}}}}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)))
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, err
	}
	var out []record.Record
	for _, d := range docs {
		out = append(out, record.Record{Kind: kind, Key: record.StringKey(d.Lookup("_id").StringValue()), Doc: d})
	}
	return out, nil
}

func (collectionStore) Write(context.Context, []record.Mutation) error { return errors.ErrUnsupported }

func (collectionStore) Changes(context.Context, ...string) (vrunner.Subscription, error) {
	return nil, errors.ErrUnsupported
}
