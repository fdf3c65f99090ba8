package sinktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
)

// Direct is a sink.Source over collections that never move.
type Direct struct {
	record.Store
	Tokens record.Tokens
	ID     string
}

var _ sink.Source = Direct{}

// Identity returns ID.
func (d Direct) Identity(context.Context) (string, error) { return d.ID, nil }

// Watch watches all kinds.
func (d Direct) Watch(ctx context.Context, from record.Position) (record.Stream, error) {
	var kinds []record.KindSpec
	for kind := range d.Tokens {
		kinds = append(kinds, record.KindSpec{Name: kind})
	}
	return d.Store.Watch(ctx, from, kinds)
}

// Scan reads a page of a kind.
func (d Direct) Scan(ctx context.Context, kind string, from record.Cursor, limit int, notBefore record.Version) (record.Page, error) {
	return d.Store.Scan(ctx, record.ScanRequest{Token: d.Tokens[kind], Range: record.Range{From: from}, Limit: limit, NotBefore: notBefore})
}

// Read reads records.
func (d Direct) Read(ctx context.Context, sels []record.Selector, notBefore record.Version, bytes int) (record.Snapshot, error) {
	return d.Store.Read(ctx, record.ReadRequest{Tokens: d.Tokens, Select: sels, NotBefore: notBefore, Bytes: bytes})
}

// World is a namespace in memory with the kinds of a suite.
type World struct {
	t      testing.TB
	Store  *memstore.Store
	Source Direct
}

// NewWorld returns an empty namespace. Its reads lag behind.
func NewWorld(t testing.TB) *World {
	s := memstore.NewCluster(memstore.Options{Lag: 20, Changes: 7}).Open("v1")
	w := &World{t: t, Store: s, Source: Direct{Store: s, Tokens: record.Tokens{}, ID: "first"}}
	for _, kind := range Kinds {
		tok, err := s.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 0))
		if err != nil {
			t.Fatal(err)
		}
		w.Source.Tokens[kind] = tok
	}
	return w
}

// Put writes a record, and Delete removes it.
func (w *World) Put(kind, name, text string) {
	w.t.Helper()
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "text", Value: text}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.mutate(record.Mutation{Kind: kind, Key: record.StringKey(name), Doc: doc})
}

// Delete removes a record.
func (w *World) Delete(kind, name string) {
	w.t.Helper()
	w.mutate(record.Mutation{Kind: kind, Key: record.StringKey(name)})
}

func (w *World) mutate(m record.Mutation) {
	w.t.Helper()
	if err := w.Store.Write(w.t.Context(), w.Source.Tokens, []record.Mutation{m}); err != nil {
		w.t.Fatal(err)
	}
}

// Want returns the texts of all records, by kind and name.
func (w *World) Want() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	now, err := w.Store.Position(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kind := range Kinds {
		page, err := w.Source.Scan(w.t.Context(), kind, nil, 1<<20, now.At)
		if err != nil || !page.Done {
			w.t.Fatal(page.Done, err)
		}
		for _, r := range page.Records {
			name, _ := r.Key.Name()
			all[kind+" "+name] = r.Doc.Lookup("text").StringValue()
		}
	}
	return all
}

// Config is that of a Follower of a World. Nothing waits in it for long.
func Config() sink.Config {
	cfg := sink.Config{Kinds: map[string]sink.Transform{}, Probe: 20 * time.Millisecond}
	for _, kind := range Kinds {
		cfg.Kinds[kind] = sink.Fields("text")
	}
	return cfg
}

// have returns what a sink has, in the form of digests.
func have(ctx context.Context, s sink.Sink) (map[string]sink.Digest, error) {
	out := map[string]sink.Digest{}
	for _, kind := range Kinds {
		entries, err := s.Entries(ctx, kind, "", 1<<20)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Dead {
				out[kind+" "+e.Name] = e.Digest
			}
		}
	}
	return out, nil
}

// expectAll compares a sink with all records of the world.
func (s *suite) expectAll(w *World) {
	s.t.Helper()
	want := map[string]sink.Digest{}
	for name, text := range w.Want() {
		want[name] = sink.Document{"text": {text}}.Digest()
	}
	got, err := have(s.t.Context(), s.Sink)
	s.check(err)
	if diff := gocmp.Diff(want, got); diff != "" {
		s.t.Fatalf("the sink (-records +entries):\n%s", diff)
	}
}

// Run runs a Follower until stop is called.
func Run(t testing.TB, f *sink.Follower) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return func() {
		cancel()
		if err := ended(ctx, <-done); err != nil {
			t.Error(err)
		}
	}
}

// level waits until the sink has everything that was acknowledged so far.
func level(t testing.TB, f *sink.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.Wait(ctx, time.Now()); err != nil {
		t.Fatalf("the sink is not level: %v; %+v", err, f.Status())
	}
}

// testFollower writes at random while the Follower is stopped, its sink is opened anew, its place is
// lost, and everything is rebuilt. Each time that the Follower says that it is level, the sink has
// all records.
func testFollower(t *testing.T, s *suite) {
	seed := rand.Uint64() // #nosec G404 -- printed below
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- a test must be repeatable
	w := NewWorld(t)
	change := func(rnd *rand.Rand, n int) {
		for range n {
			kind, name := Kinds[rnd.IntN(len(Kinds))], fmt.Sprintf("n%03d", rnd.IntN(300))
			if rnd.IntN(3) == 0 {
				w.Delete(kind, name)
			} else {
				w.Put(kind, name, strings.Repeat("word ", rnd.IntN(4))+fmt.Sprint("t", rnd.IntN(1000)))
			}
		}
	}
	change(rnd, 1500)
	for round := range 8 {
		f := sink.New(w.Source, s.Sink, Config())
		stop := Run(t, f)
		var writers sync.WaitGroup
		other := rand.New(rand.NewPCG(seed, uint64(round))) // #nosec G404 G115 -- as above
		writers.Go(func() { change(other, 200) })
		switch round {
		case 1: // stopped at once, most likely within the scan
		case 3:
			level(t, f)
			f.Rebuild()
		default:
			level(t, f)
		}
		writers.Wait()
		if round != 1 {
			level(t, f)
			s.expectAll(w)
		}
		stop()
		s.reopen()
		change(rnd, 50) // nobody follows these now
		switch round {
		case 5:
			w.Store.Cluster().LoseHistory()
		case 6:
			w.Source.ID = "second" // another database, as far as anybody knows
		}
	}
	st, err := s.State(t.Context())
	s.check(err)
	// The first scan, the rebuild, the lost place and the other database.
	if st.Generation != 4 {
		t.Errorf("generation %d, want 4", st.Generation)
	}
}

// testVerify plants what a sink must not have.
func testVerify(t *testing.T, s *suite) {
	w := NewWorld(t)
	for i := range 30 {
		w.Put("items", fmt.Sprintf("n%02d", i), "text")
	}
	w.Put("notes", "a", "text")
	w.Delete("notes", "a")
	f := sink.New(w.Source, s.Sink, Config())
	stop := Run(t, f)
	level(t, f)
	report, err := f.Verify(t.Context())
	s.check(err)
	if diff := gocmp.Diff(sink.Report{Records: 30, Entries: 30}, report); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	stop()
	st, err := s.State(t.Context())
	s.check(err)
	s.state = st
	high := record.Guard{Epoch: st.Generation, Version: record.Version{0: 0xff}}
	s.write(put("n03", "other", high), put("strange", "text", high), gone("n05", high))
	f = sink.New(w.Source, s.Sink, Config())
	stop = Run(t, f)
	defer func() { stop() }()
	report, err = f.Verify(t.Context())
	s.check(err)
	want := sink.Report{Records: 30, Entries: 30, Found: 3, Differences: []sink.Difference{
		{Kind: "items", Name: "n03", What: "outdated"}, {Kind: "items", Name: "n05", What: "missing"}, {Kind: "items", Name: "strange", What: "extra"},
	}}
	if diff := gocmp.Diff(want, report); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	f.Rebuild()
	for f.Status().Generation == st.Generation || f.Status().Scan != nil {
		level(t, f)
	}
	s.expectAll(w)
}
