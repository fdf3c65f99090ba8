package changes_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

func marker(m string) func(record.Change) bool {
	return func(c record.Change) bool { return c.Marker == m }
}

// TestWatchValidatorMarker: a collMod whose validator is a fence's arrives as a marker,
// for fixed and managed kinds, also when it is issued again; others do not.
func TestWatchValidatorMarker(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	fixed, managed := e.Collection("f", "f", true), e.Managed("m")
	s := e.Watch(e.Position(), record.KindSpec{Name: "f", Fixed: true}, record.KindSpec{Name: "m"})
	validator := func(tok record.Token, v any) {
		t.Helper()
		if err := e.NS.DB.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: tok.Name}, {Key: "validator", Value: v}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	fence := func(mark string) bson.D {
		return bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{"dbc-fence:" + mark, ""}}}}}
	}
	for _, tok := range []record.Token{fixed, managed} {
		validator(tok, bson.D{{Key: "x", Value: bson.D{{Key: "$exists", Value: false}}}})
		validator(tok, fence("mark/"+tok.Kind))
		validator(tok, fence("mark/"+tok.Kind))
		validator(tok, bson.D{})
	}
	e.Insert(managed, bson.D{{Key: "_id", Value: "end"}})
	got := e.Until(s, func(c record.Change) bool { return c.Key == record.StringKey("end") })
	want := []record.Change{
		{Kind: "f", Marker: "mark/f"}, {Kind: "f", Marker: "mark/f"},
		{Kind: "m", Marker: "mark/m"}, {Kind: "m", Marker: "mark/m"},
		{Kind: "m", Key: record.StringKey("end")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestWatchBroken: what no engine can follow ends the stream, after the changes before it.
func TestWatchBroken(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		act  func(e *storetest.Engine, fixed, managed record.Token) error
	}{
		{"drop of a fixed kind", func(e *storetest.Engine, fixed, _ record.Token) error { return e.Coll(fixed).Drop(e.Ctx()) }},
		{"drop of a managed kind", func(e *storetest.Engine, _, managed record.Token) error { return e.Coll(managed).Drop(e.Ctx()) }},
		{"drop of the database", func(e *storetest.Engine, _, _ record.Token) error { return e.NS.DB.Drop(e.Ctx()) }},
		{"foreign rename of a fixed kind", func(e *storetest.Engine, fixed, _ record.Token) error { e.Rename(fixed.Name, "elsewhere"); return nil }},
		{"foreign rename of a managed kind", func(e *storetest.Engine, _, managed record.Token) error {
			e.Rename(managed.Name, "elsewhere")
			return nil
		}},
		{"foreign collection takes a fixed kind's name", func(e *storetest.Engine, fixed, _ record.Token) error {
			e.Collection("x", "foreign", true)
			return e.NS.Mongo.Database("admin").RunCommand(e.Ctx(), bson.D{
				{Key: "renameCollection", Value: e.NS.Name + ".foreign"}, {Key: "to", Value: e.NS.Name + ".f"}, {Key: "dropTarget", Value: true},
			}).Err()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := storetest.NewEngine(t)
			fixed, managed := e.Collection("f", "f", true), e.Managed("m")
			s := e.Watch(e.Position(), record.KindSpec{Name: "f", Fixed: true}, record.KindSpec{Name: "m"})
			e.Insert(fixed, bson.D{{Key: "_id", Value: 1}})
			if err := tt.act(e, fixed, managed); err != nil {
				t.Fatal(err)
			}
			if got := e.Broken(s); len(got) != 1 {
				t.Errorf("changes before the end: %v, want one", got)
			}
		})
	}
}

// TestWatchIgnores: what happens next to the kinds is neither delivered nor an end.
func TestWatchIgnores(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	fixed, managed := e.Collection("f", "f", true), e.Managed("m")
	hidden := e.Collection("f", record.PhysicalName("f", 4), true)
	other := e.Collection("other", "other", true)
	near := e.Collection("mx", "mx.n1", false)
	s := e.Watch(e.Position(), record.KindSpec{Name: "f", Fixed: true}, record.KindSpec{Name: "m"})
	if err := e.NS.DB.CreateView(t.Context(), "view", "f", bson.A{}); err != nil {
		t.Fatal(err)
	}
	e.Insert(other, bson.D{{Key: "_id", Value: 1}})
	e.Insert(near, bson.D{{Key: "_id", Value: 1}})
	e.Insert(hidden, bson.D{{Key: "_id", Value: 1}})
	e.Apply(1, storetest.TokensOf(fixed), storetest.Group(1, storetest.Put(t, "f", bson.D{{Key: "_id", Value: 5}})))
	if err := e.Coll(other).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Coll(hidden).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A view takes the place of a fenced fixed kind and goes again.
	e.Rename("f", "f.n5")
	if err := e.NS.DB.CreateView(t.Context(), "f", "f.n5", bson.A{}); err != nil {
		t.Fatal(err)
	}
	if err := e.NS.DB.Collection("f").Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Rename("f.n5", "f")
	e.Rename(managed.Name, "m.n2")
	got := e.Until(s, marker("m.n2"))
	number := func(n byte) record.Key {
		return record.Key(append([]byte{byte(bson.TypeInt64), n}, make([]byte, 7)...))
	}
	want := []record.Change{
		{Kind: "f", Key: number(1)}, // by hand, under a hidden name
		{Kind: "f", Key: number(5)},
		{Kind: "f", Marker: "f.n5"}, {Kind: "f", Marker: "f"}, {Kind: "m", Marker: "m.n2"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestWatchResume: from every position that a stream gave, exactly what follows it comes,
// with at most the changes of that one cluster time again.
func TestWatchResume(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	spec := record.KindSpec{Name: "m"}
	start := e.Position()
	// One command, one cluster time.
	for i := range 5 {
		e.Insert(tok, bson.D{{Key: "_id", Value: i * 10}}, bson.D{{Key: "_id", Value: i*10 + 1}}, bson.D{{Key: "_id", Value: i*10 + 2}})
	}
	e.Rename("m.n1", "m.n2")
	type step struct {
		pos  record.Position
		seen int
	}
	var steps []step
	var all []record.Change
	s := e.Watch(start, spec)
	for !slices.ContainsFunc(all, marker("m.n2")) {
		batch, err := s.Next(e.Ctx())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch.Changes...)
		if len(batch.Changes) > 0 && batch.Wall == 0 {
			t.Error("changes without wall time")
		}
		steps = append(steps, step{batch.Pos, len(all)})
	}
	if len(all) != 16 {
		t.Fatalf("%d changes, want 16", len(all))
	}
	for _, st := range append(steps, step{start, 0}) {
		got := e.Until(e.Watch(st.pos, spec), marker("m.n2"))
		if again := len(got) - (len(all) - st.seen); again < 0 || again > 3 {
			t.Errorf("from %v: %d changes, seen %d of %d before", st.pos, len(got), st.seen, len(all))
		}
		if !slices.Equal(got, all[len(all)-len(got):]) {
			t.Errorf("from %v: %v", st.pos, got)
		}
	}
}

// TestWatchIdle: without changes positions grow.
func TestWatchIdle(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	e.Managed("m")
	start := e.Position()
	s := e.Watch(start, record.KindSpec{Name: "m"})
	later := e.Position()
	for {
		batch, err := s.Next(e.Ctx())
		if err != nil {
			t.Fatal(err)
		}
		if len(batch.Changes) != 0 || batch.Wall != 0 {
			t.Fatalf("changes of nothing: %+v", batch)
		}
		if batch.Pos.At.Compare(later.At) >= 0 {
			break
		}
	}
}

func TestTokenTime(t *testing.T) {
	t.Parallel()
	tests := []struct {
		data string
		want bson.Timestamp
		ok   bool
	}{
		{"826B00F748000000102B042C0100296E5A", bson.Timestamp{T: 0x6B00F748, I: 16}, true},
		{"826B00F74800000010", bson.Timestamp{T: 0x6B00F748, I: 16}, true},
		{"826B00F748000000", bson.Timestamp{}, false},
		{"836B00F74800000010", bson.Timestamp{}, false},
		{"82ZZ00F74800000010", bson.Timestamp{}, false},
		{"", bson.Timestamp{}, false},
	}
	for _, tt := range tests {
		got, ok := conn.TokenTime(storetest.Raw(t, bson.D{{Key: "_data", Value: tt.data}}))
		if ok != tt.ok || got != tt.want {
			t.Errorf("%q: %v, %t", tt.data, got, ok)
		}
	}
}

// TestWatchLostHistory: a place that the oplog no longer reaches back to, be it that of a
// new stream or of one that fell behind, is a loss of the history.
func TestWatchLostHistory(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t, localmongo.Options{OplogMB: 16, CheckpointEvery: 1, Own: true})
	e := &storetest.Engine{T: t, NS: storetest.BenchAt(t, srv.URI(), "app").Namespace}
	tok := e.Managed("m")
	spec := record.KindSpec{Name: "m"}
	before := e.Position()
	slow := e.Watch(before, spec)
	big := strings.Repeat("x", 1<<20)
	for i := 0; ; i++ {
		if i == 500 {
			t.Fatal("500 MB did not roll an oplog of 16 MB over")
		}
		e.Insert(tok, bson.D{{Key: "_id", Value: i}, {Key: "big", Value: big}})
		s, err := e.NS.Watch(t.Context(), before, []record.KindSpec{spec})
		if err != nil {
			if !errors.Is(err, record.ErrHistoryLost) {
				t.Fatalf("a new stream: %v, want ErrHistoryLost", err)
			}
			break
		}
		if err := s.Close(e.Ctx()); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 { // what it was sent before comes first
		if _, err := slow.Next(e.Ctx()); err != nil {
			if !errors.Is(err, record.ErrHistoryLost) {
				t.Errorf("a stream that fell behind: %v, want ErrHistoryLost", err)
			}
			if _, again := slow.Next(e.Ctx()); !errors.Is(again, record.ErrHistoryLost) {
				t.Errorf("a stream that had ended went on: %v", again)
			}
			break
		}
	}
	s := e.Watch(e.Position(), spec)
	e.Insert(tok, bson.D{{Key: "_id", Value: "after"}})
	e.Until(s, func(c record.Change) bool { return c.Key == record.StringKey("after") })
}

func TestLostHistoryCodes(t *testing.T) {
	t.Parallel()
	for _, code := range []int32{conn.CodeHistoryLost, conn.CodeOplogPositionLost, conn.CodeInvalidResumeToken, conn.CodeChangeStreamFatal} {
		if err := conn.Classify("watch", mongo.CommandError{Code: code}); !errors.Is(err, record.ErrHistoryLost) {
			t.Errorf("code %d: %v, want ErrHistoryLost", code, err)
		}
	}
}

// TestWatchInvalidated: a database that is dropped ends its streams. If nothing of the kinds
// was dropped with it, a follower may begin again.
func TestWatchInvalidated(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	e.Collection("x", "other", true)
	s := e.Watch(e.Position(), record.KindSpec{Name: "m"})
	if err := e.NS.DB.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := s.Next(e.Ctx())
		if errors.Is(err, record.ErrHistoryLost) {
			break
		}
		if err != nil {
			t.Fatalf("%v, want ErrHistoryLost", err)
		}
	}
	managed := e.Managed("m")
	again := e.Watch(e.Position(), record.KindSpec{Name: "m"})
	e.Insert(managed, bson.D{{Key: "_id", Value: "after"}})
	e.Until(again, func(c record.Change) bool { return c.Key == record.StringKey("after") })
}
