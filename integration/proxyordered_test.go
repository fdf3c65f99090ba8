package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
)

// TestProxyOrderedCursors: queries by _id over more documents than a proxy keeps are open during a switch and the
// way back. Each document comes once, whatever the types of the ids. A query without an order ends.
func TestProxyOrderedCursors(t *testing.T) {
	t.Parallel()
	for _, clusters := range []int{1, 2} {
		t.Run(fmt.Sprint(clusters), func(t *testing.T) {
			t.Parallel()
			orderedCursors(t, clusters)
		})
	}
}

func orderedCursors(t *testing.T, clusters int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	own := start(ctx, t, localmongo.Options{Own: true}).URI()
	uris := map[string]string{"v1": own, "v2": own}
	if clusters == 2 {
		uris["v2"] = start(ctx, t, localmongo.Options{Own: true}).URI()
	}
	s := newSystem(ctx, t, settings{
		service: "shop", lens: "lens: 1\noperations: []\n", kinds: "[{from: records, to: records, lens: packages.yaml}]", uris: uris,
	})
	records := s.db["v1"].Collection("records")
	// More than 16 MB are left at the first switch, and at the second one.
	const size = 30 << 10
	filling := bytes.Repeat([]byte{1}, size)
	ids := []any{true, false, bson.D{{Key: "a", Value: 1}}, bson.D{{Key: "a", Value: "b"}}, bson.D{{Key: "b", Value: 0}}}
	for i := range 300 {
		ids = append(
			ids, i, float64(i)+0.5, int64(1<<40+i), fmt.Sprintf("s%d", i), bson.NewObjectID(), time.UnixMilli(int64(i)),
			bson.Binary{Data: fmt.Appendf(nil, "%d", i)}, bson.D{{Key: "c", Value: i}},
		)
	}
	var docs []any
	for i, id := range ids {
		docs = append(docs, bson.D{{Key: "_id", Value: id}, {Key: "n", Value: i}, {Key: "filling", Value: filling}})
	}
	if _, err := records.InsertMany(ctx, docs); err != nil {
		t.Fatal(err)
	}
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.startProxy(ctx, api, "records")))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
	through := client.Database(s.db["v1"].Name()).Collection("records")
	byID := func(direction int) *options.FindOptionsBuilder {
		return options.Find().SetSort(bson.D{{Key: "_id", Value: direction}}).SetBatchSize(20)
	}
	all := bson.D{}
	cursors := map[string]*openCursor{}
	for name, c := range map[string]struct {
		filter bson.D
		opts   *options.FindOptionsBuilder
	}{
		"up":            {all, byID(1)},
		"down":          {all, byID(-1)},
		"skip and some": {bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: 5}}}}, byID(1).SetSkip(30).SetLimit(2000).SetProjection(bson.D{{Key: "filling", Value: 1}})},
		"no order":      {all, options.Find().SetBatchSize(20)},
	} {
		o := &openCursor{}
		if name != "no order" {
			found, err := records.Find(ctx, c.filter, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			for found.Next(ctx) {
				o.want = append(o.want, found.Current.Lookup("_id").String())
			}
			if found.Err() != nil || len(o.want) < 1900 {
				t.Fatal(len(o.want), found.Err())
			}
		}
		if o.Cursor, err = through.Find(ctx, c.filter, c.opts); err != nil {
			t.Fatal(err)
		}
		defer o.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the test ends
		cursors[name] = o
		o.read(ctx, 50)
	}
	for _, version := range []string{"v2", "v1"} {
		s.beginTo(ctx, version)
		s.await(ctx, "the flip to "+version, flipped(version))
		for _, o := range cursors {
			o.read(ctx, 900)
		}
	}
	for name, o := range cursors {
		o.read(ctx, len(ids))
		err := o.Err()
		if name == "no order" {
			var failed mongo.CommandError
			if !errors.As(err, &failed) || failed.Code != 43 {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || fmt.Sprint(o.got) != fmt.Sprint(o.want) {
			t.Errorf("%s: %d documents, want %d, or in another order: %v", name, len(o.got), len(o.want), err)
		}
	}
}

// openCursor is a cursor, and what it has given.
type openCursor struct {
	*mongo.Cursor
	got, want []string // ids
}

func (o *openCursor) read(ctx context.Context, n int) {
	for range n {
		if !o.Next(ctx) {
			return
		}
		o.got = append(o.got, o.Current.Lookup("_id").String())
	}
}
