package provision_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// TestBuildIndexesTogether: several callers share one build, and each returns when all is
// complete.
func TestBuildIndexesTogether(t *testing.T) {
	e := storetest.NewEngine(t)
	spec := record.KindSpec{Name: "things"}
	tok, err := e.NS.Provision(t.Context(), spec, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	docs := make([]any, 20_000)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: i}, {Key: "a", Value: -i}, {Key: "b", Value: i % 7}}
	}
	e.Insert(tok, docs...)
	for _, field := range []string{"a", "b"} {
		spec.Shape.Indexes = append(spec.Shape.Indexes, wire.MustMarshal(bson.D{{Key: "key", Value: bson.D{{Key: field, Value: 1}}}}))
	}
	g, ctx := errgroup.WithContext(t.Context())
	for range 4 {
		g.Go(func() error {
			if err := e.NS.BuildIndexes(ctx, tok, spec); err != nil {
				return err
			}
			info, err := e.NS.Describe(ctx, spec, tok.Name)
			if err == nil && len(info.Shape.Indexes) != 2 {
				err = errors.New("a build has returned before it was complete")
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var names []string
	info, err := e.NS.Describe(t.Context(), spec, tok.Name)
	for _, ix := range info.Shape.Indexes {
		names = append(names, record.IndexName(ix))
	}
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"a_1", "b_1"}) {
		t.Errorf("indexes %v, %v", names, err)
	}
}

// TestDifferentIndexes: what is there and differs is named, with what to do, in each way in
// which the server finds it to differ.
func TestDifferentIndexes(t *testing.T) {
	e := storetest.NewEngine(t)
	spec := record.KindSpec{Name: "things"}
	tok, err := e.NS.Provision(t.Context(), spec, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	key := func(field string) bson.E { return bson.E{Key: "key", Value: bson.D{{Key: field, Value: 1}}} }
	name := bson.E{Key: "name", Value: "mail_1"}
	shape := func(d ...bson.E) record.Shape { return record.Shape{Indexes: []bson.Raw{wire.MustMarshal(d)}} }
	spec.Shape = shape(key("mail"), name)
	if err := e.NS.BuildIndexes(t.Context(), tok, spec); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		declared record.Shape
		want     string
	}{
		"key":        {shape(key("other"), name), "index mail_1 exists and differs"},
		"unique":     {shape(key("mail"), name, bson.E{Key: "unique", Value: true}), "index mail_1 exists and differs"},
		"name":       {shape(key("mail"), bson.E{Key: "name", Value: "by mail"}), "index mail_1 has the key of the declared index by mail"},
		"expiry":     {shape(key("mail"), name, bson.E{Key: "expireAfterSeconds", Value: 5}), "index mail_1 exists and differs from the declared one: it lacks expireAfterSeconds: "},
		"collation":  {shape(key("mail"), name, bson.E{Key: "collation", Value: bson.D{{Key: "locale", Value: "de"}}}), "index mail_1 exists and differs from the declared one: it lacks collation: "},
		"in another": {shape(key("mail"), name, bson.E{Key: "sparse", Value: true}), "index mail_1 exists and differs from the declared one: it lacks sparse: true"},
		"hidden":     {shape(key("mail"), name, bson.E{Key: "hidden", Value: true}), "index mail_1 exists and differs from the declared one: it lacks hidden: true"},
	} {
		spec.Shape = c.declared
		err := e.NS.BuildIndexes(t.Context(), tok, spec)
		if !errors.Is(err, record.ErrConflict) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "unique index") {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestIndexThatCannotBe: what the server does not take is an error at once.
func TestIndexThatCannotBe(t *testing.T) {
	e := storetest.NewEngine(t)
	tok := e.Managed("things")
	for _, more := range []bson.E{{Key: "bogus", Value: true}, {Key: "expireAfterSeconds", Value: -1}} {
		spec := record.KindSpec{Name: "things", Shape: record.Shape{Indexes: []bson.Raw{wire.MustMarshal(bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}, more})}}}
		if err := e.NS.BuildIndexes(e.Ctx(), tok, spec); err == nil || e.Ctx().Err() != nil {
			t.Errorf("%s: %v", more.Key, err)
		}
	}
}

// TestDescribeLeavesOutWhatIsBeingBuilt: an index that is listed and not complete is no part
// of the shape, and a build that is asked for meanwhile returns only when it is.
func TestDescribeLeavesOutWhatIsBeingBuilt(t *testing.T) {
	e := storetest.NewEngine(t)
	spec := record.KindSpec{Name: "things", Shape: record.Shape{Indexes: []bson.Raw{wire.MustMarshal(bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}})}}}
	tok, err := e.NS.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		docs := make([]any, 5000)
		for i := range docs {
			docs[i] = bson.D{{Key: "a", Value: bson.NewObjectID()}}
		}
		e.Insert(tok, docs...)
	}
	// A transaction that holds the collection keeps a build that has begun from its end.
	holding := func() (release func(), ok bool) {
		built := make(chan error, 1)
		go func() { built <- e.NS.BuildIndexes(e.Ctx(), tok, spec) }()
		for {
			listed, err := e.NS.ListIndexes(t.Context(), tok)
			if err != nil {
				t.Fatal(err)
			}
			if len(listed) == 2 {
				break
			}
		}
		session, err := e.NS.Mongo.StartSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := session.StartTransaction(); err != nil {
			t.Fatal(err)
		}
		_, err = e.Coll(tok).InsertOne(mongo.NewSessionContext(t.Context(), session), bson.D{{Key: "_id", Value: bson.NewObjectID()}})
		// A build takes the collection for itself at its begin and at its end. A transaction waits 5 ms
		// for that, and is ended with a transient error.
		var refused mongo.LabeledError
		ended := errors.As(err, &refused) && refused.HasErrorLabel("TransientTransactionError")
		if err != nil && !ended {
			t.Fatal(err)
		}
		release = func() {
			if err := session.AbortTransaction(context.WithoutCancel(t.Context())); err != nil && !ended {
				t.Error(err)
			}
			session.EndSession(context.WithoutCancel(t.Context()))
			if err := <-built; err != nil {
				t.Error(err)
			}
		}
		listed, err := e.NS.ListIndexes(t.Context(), tok)
		if err != nil {
			t.Fatal(err)
		}
		return release, !ended && len(listed) == 2 && listed[1].Building
	}
	shape := func() int {
		info, err := e.NS.Describe(t.Context(), spec, tok.Name)
		if err != nil {
			t.Fatal(err)
		}
		return len(info.Shape.Indexes)
	}
	for try := 0; ; try++ {
		release, ok := holding()
		if ok {
			if n := shape(); n != 0 {
				t.Errorf("%d indexes while one is being built", n)
			}
			release()
			break
		}
		release() // it was complete before the transaction began, or ended the transaction
		if try == 20 {
			t.Fatal("no build was met on its way")
		}
		if err := e.Coll(tok).Indexes().DropOne(t.Context(), "a_1"); err != nil {
			t.Fatal(err)
		}
	}
	if n := shape(); n != 1 {
		t.Errorf("%d indexes after the build", n)
	}
}

// TestListedIndexForms: servers list the spec alone, or together with the state of its
// build.
func TestListedIndexForms(t *testing.T) {
	spec := bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "name", Value: "a_1"}}
	for _, c := range []struct {
		entry    bson.D
		building bool
	}{
		{spec, false},
		{bson.D{{Key: "spec", Value: spec}}, false},
		{bson.D{{Key: "spec", Value: spec}, {Key: "indexBuildInfo", Value: bson.D{{Key: "method", Value: "Hybrid"}}}}, true},
	} {
		ix := conn.ListedFrom(wire.MustMarshal(c.entry))
		if ix.Name != "a_1" || ix.Building != c.building || ix.Spec.Lookup("key", "a").IsZero() {
			t.Errorf("%v: %+v", c.entry, ix)
		}
	}
}
