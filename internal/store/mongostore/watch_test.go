package mongostore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/record"
)

func marker(m string) func(record.Change) bool {
	return func(c record.Change) bool { return c.Marker == m }
}

// TestWatchValidatorMarker: a collMod whose validator is a fence's arrives as a marker,
// for fixed and managed kinds, also when it is issued again; others do not.
func TestWatchValidatorMarker(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	fixed, managed := e.collection("f", "f", true), e.managed("m")
	s := e.watch(e.position(), record.KindSpec{Name: "f", Fixed: true}, record.KindSpec{Name: "m"})
	validator := func(tok record.Token, v any) {
		t.Helper()
		if err := e.ns.db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: tok.Name}, {Key: "validator", Value: v}}).Err(); err != nil {
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
	e.insert(managed, bson.D{{Key: "_id", Value: "end"}})
	got := e.until(s, func(c record.Change) bool { return c.Key == record.StringKey("end") })
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
		act  func(e *engine, fixed, managed record.Token) error
	}{
		{"drop of a fixed kind", func(e *engine, fixed, _ record.Token) error { return e.coll(fixed).Drop(e.ctx()) }},
		{"drop of a managed kind", func(e *engine, _, managed record.Token) error { return e.coll(managed).Drop(e.ctx()) }},
		{"drop of the database", func(e *engine, _, _ record.Token) error { return e.ns.db.Drop(e.ctx()) }},
		{"foreign rename of a fixed kind", func(e *engine, fixed, _ record.Token) error { e.rename(fixed.Name, "elsewhere"); return nil }},
		{"foreign rename of a managed kind", func(e *engine, _, managed record.Token) error { e.rename(managed.Name, "elsewhere"); return nil }},
		{"foreign collection takes a fixed kind's name", func(e *engine, fixed, _ record.Token) error {
			e.collection("x", "foreign", true)
			return e.ns.client.Database("admin").RunCommand(e.ctx(), bson.D{
				{Key: "renameCollection", Value: e.ns.name + ".foreign"}, {Key: "to", Value: e.ns.name + ".f"}, {Key: "dropTarget", Value: true},
			}).Err()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			fixed, managed := e.collection("f", "f", true), e.managed("m")
			s := e.watch(e.position(), record.KindSpec{Name: "f", Fixed: true}, record.KindSpec{Name: "m"})
			e.insert(fixed, bson.D{{Key: "_id", Value: 1}})
			if err := tt.act(e, fixed, managed); err != nil {
				t.Fatal(err)
			}
			if got := e.broken(s); len(got) != 1 {
				t.Errorf("changes before the end: %v, want one", got)
			}
		})
	}
}

// TestWatchIgnores: what happens next to the kinds is neither delivered nor an end.
func TestWatchIgnores(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	fixed, managed := e.collection("f", "f", true), e.managed("m")
	hidden := e.collection("f", record.PhysicalName("f", 4), true)
	other := e.collection("other", "other", true)
	near := e.collection("mx", "mx.n1", false)
	s := e.watch(e.position(), record.KindSpec{Name: "f", Fixed: true}, record.KindSpec{Name: "m"})
	if err := e.ns.db.CreateView(t.Context(), "view", "f", bson.A{}); err != nil {
		t.Fatal(err)
	}
	e.insert(other, bson.D{{Key: "_id", Value: 1}})
	e.insert(near, bson.D{{Key: "_id", Value: 1}})
	e.insert(hidden, bson.D{{Key: "_id", Value: 1}})
	e.apply(1, tokensOf(fixed), group(1, put(t, "f", bson.D{{Key: "_id", Value: 5}})))
	if err := e.coll(other).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.coll(hidden).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A view takes the place of a fenced fixed kind and goes again.
	e.rename("f", "f.n5")
	if err := e.ns.db.CreateView(t.Context(), "f", "f.n5", bson.A{}); err != nil {
		t.Fatal(err)
	}
	if err := e.ns.db.Collection("f").Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.rename("f.n5", "f")
	e.rename(managed.Name, "m.n2")
	got := e.until(s, marker("m.n2"))
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
	e := newEngine(t)
	tok := e.managed("m")
	spec := record.KindSpec{Name: "m"}
	start := e.position()
	// One command, one cluster time.
	for i := range 5 {
		e.insert(tok, bson.D{{Key: "_id", Value: i * 10}}, bson.D{{Key: "_id", Value: i*10 + 1}}, bson.D{{Key: "_id", Value: i*10 + 2}})
	}
	e.rename("m.n1", "m.n2")
	type step struct {
		pos  record.Position
		seen int
	}
	var steps []step
	var all []record.Change
	s := e.watch(start, spec)
	for !slices.ContainsFunc(all, marker("m.n2")) {
		batch, err := s.Next(e.ctx())
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
		got := e.until(e.watch(st.pos, spec), marker("m.n2"))
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
	e := newEngine(t)
	e.managed("m")
	start := e.position()
	s := e.watch(start, record.KindSpec{Name: "m"})
	later := e.position()
	for {
		batch, err := s.Next(e.ctx())
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
		got, ok := tokenTime(raw(t, bson.D{{Key: "_data", Value: tt.data}}))
		if ok != tt.ok || got != tt.want {
			t.Errorf("%q: %v, %t", tt.data, got, ok)
		}
	}
}

// TestWatchLostHistory: a place that the oplog no longer reaches back to, be it that of a
// new stream or of one that fell behind, is a loss of the history.
func TestWatchLostHistory(t *testing.T) {
	t.Parallel()
	srv := start(t, localmongo.Options{OplogMB: 16, CheckpointEvery: 1, Own: true})
	e := &engine{t: t, ns: benchAt(t, srv.URI(), "app").Namespace}
	tok := e.managed("m")
	spec := record.KindSpec{Name: "m"}
	before := e.position()
	slow := e.watch(before, spec)
	big := strings.Repeat("x", 1<<20)
	for i := 0; ; i++ {
		if i == 500 {
			t.Fatal("500 MB did not roll an oplog of 16 MB over")
		}
		e.insert(tok, bson.D{{Key: "_id", Value: i}, {Key: "big", Value: big}})
		s, err := e.ns.Watch(t.Context(), before, []record.KindSpec{spec})
		if err != nil {
			if !errors.Is(err, record.ErrHistoryLost) {
				t.Fatalf("a new stream: %v, want ErrHistoryLost", err)
			}
			break
		}
		if err := s.Close(e.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 { // what it was sent before comes first
		if _, err := slow.Next(e.ctx()); err != nil {
			if !errors.Is(err, record.ErrHistoryLost) {
				t.Errorf("a stream that fell behind: %v, want ErrHistoryLost", err)
			}
			if _, again := slow.Next(e.ctx()); !errors.Is(again, record.ErrHistoryLost) {
				t.Errorf("a stream that had ended went on: %v", again)
			}
			break
		}
	}
	s := e.watch(e.position(), spec)
	e.insert(tok, bson.D{{Key: "_id", Value: "after"}})
	e.until(s, func(c record.Change) bool { return c.Key == record.StringKey("after") })
}

func TestLostHistoryCodes(t *testing.T) {
	t.Parallel()
	for _, code := range []int32{codeHistoryLost, codeOplogPositionLost, codeInvalidResumeToken, codeChangeStreamFatal} {
		if err := classify("watch", mongo.CommandError{Code: code}); !errors.Is(err, record.ErrHistoryLost) {
			t.Errorf("code %d: %v, want ErrHistoryLost", code, err)
		}
	}
}

// TestWatchInvalidated: a database that is dropped ends its streams. If nothing of the kinds
// was dropped with it, a follower may begin again.
func TestWatchInvalidated(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.collection("x", "other", true)
	s := e.watch(e.position(), record.KindSpec{Name: "m"})
	if err := e.ns.db.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := s.Next(e.ctx())
		if errors.Is(err, record.ErrHistoryLost) {
			break
		}
		if err != nil {
			t.Fatalf("%v, want ErrHistoryLost", err)
		}
	}
	managed := e.managed("m")
	again := e.watch(e.position(), record.KindSpec{Name: "m"})
	e.insert(managed, bson.D{{Key: "_id", Value: "after"}})
	e.until(again, func(c record.Change) bool { return c.Key == record.StringKey("after") })
}
