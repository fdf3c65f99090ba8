// Package sinktest is the suite that every sink passes (sink.Sink), with a sink in memory that
// misbehaves on request.
//
// Exercise tests the contract call by call, and then a Follower over a namespace in memory: writes
// go on while it is stopped, while its sink is opened anew and while its place is lost.
//
// It is not for users and may change with any version.
package sinktest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
)

// Backend is a sink under test.
type Backend struct {
	sink.Sink
	// Reopen closes the sink, as the end of its process does, and opens it again. Nil: the sink
	// outlives its process.
	Reopen func() sink.Sink
}

// Kinds are the kinds that a sink under test must have, with the field "text" in each.
var Kinds = []string{"items", "items2", "notes"}

// Exercise runs the suite. open returns a new and empty sink each time.
func Exercise(t *testing.T, open func(t *testing.T) Backend) {
	for name, test := range map[string]func(*testing.T, *suite){
		"State": testState, "Guards": testGuards, "Generations": testGenerations, "Tombstones": testTombstones,
		"Entries": testEntries, "OddNames": testOddNames, "Follower": testFollower, "Verify": testVerify,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &suite{t: t, Backend: open(t)})
		})
	}
}

type suite struct {
	t *testing.T
	Backend
	state sink.State
}

// reopen opens the sink again, if that means anything.
func (s *suite) reopen() {
	if s.Reopen != nil {
		s.Sink = s.Reopen()
	}
}

func (s *suite) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *suite) write(items ...sink.Item) {
	s.t.Helper()
	s.check(s.Write(s.t.Context(), items, s.state))
}

// guard returns the guard of a generation and a small version.
func guard(generation uint64, version byte) record.Guard {
	return record.Guard{Epoch: generation, Version: record.Version{7: version}}
}

// put and gone return writes of a record.
func put(name, text string, g record.Guard) sink.Item {
	doc := sink.Document{"text": {text}}
	return sink.Item{Kind: "items", Name: name, Guard: g, Doc: doc, Digest: doc.Digest()}
}

func gone(name string, g record.Guard) sink.Item {
	return sink.Item{Kind: "items", Name: name, Guard: g}
}

func entryOf(it sink.Item) sink.Entry {
	return sink.Entry{Name: it.Name, Guard: it.Guard, Digest: it.Digest, Dead: it.Doc == nil}
}

// expect compares the entries of a kind with those of items, in name order.
func (s *suite) expect(kind string, items ...sink.Item) {
	s.t.Helper()
	var want []sink.Entry
	for _, it := range items {
		want = append(want, entryOf(it))
	}
	got, err := s.Entries(s.t.Context(), kind, "", 1000)
	s.check(err)
	if diff := gocmp.Diff(want, slices.Clip(got)); diff != "" {
		s.t.Fatalf("entries of %s (-want +got):\n%s", kind, diff)
	}
}

func testState(t *testing.T, s *suite) {
	got, err := s.State(t.Context())
	s.check(err)
	if diff := gocmp.Diff(sink.State{}, got); diff != "" {
		t.Fatalf("state of an empty sink (-want +got):\n%s", diff)
	}
	for _, want := range []sink.State{
		{Generation: 3, Source: "here", Position: record.Position{At: record.Version{0: 1}, Token: []byte{0, 1, 0xff}}, Scan: &sink.Scan{Kind: "items", From: record.Cursor{1, 2}, Repair: true}},
		{Generation: 3, Source: "here", Position: record.Position{At: record.Version{0: 2}}},
	} {
		s.state = want
		s.write(put("a", "x", guard(3, 1)))
		for range 2 {
			got, err := s.State(t.Context())
			s.check(err)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("state (-want +got):\n%s", diff)
			}
			s.reopen()
		}
	}
	s.write() // a state without items
	s.expect("items", put("a", "x", guard(3, 1)))
}

func testGuards(_ *testing.T, s *suite) {
	first, second := put("a", "one", guard(1, 2)), put("a", "two", guard(1, 3))
	s.write(first, put("b", "b", guard(1, 5)))
	s.write(put("a", "equal", guard(1, 2))) // no-op
	s.write(put("a", "late", guard(1, 1)))  // no-op
	s.expect("items", first, put("b", "b", guard(1, 5)))
	s.reopen()
	s.write(put("a", "late", guard(1, 1)), second, put("c", "c", guard(1, 1)))
	s.write(first)
	s.expect("items", second, put("b", "b", guard(1, 5)), put("c", "c", guard(1, 1)))
}

func testGenerations(t *testing.T, s *suite) {
	s.write(put("a", "old", guard(1, 9)), put("b", "old", guard(1, 9)), gone("c", guard(1, 9)), gone("d", guard(1, 9)))
	// The clock of another database may be behind.
	s.write(put("a", "new", guard(2, 1)), gone("d", guard(2, 1)))
	s.write(put("a", "late", guard(1, 200)), put("e", "late", guard(1, 200)))
	s.expect("items", put("a", "new", guard(2, 1)), put("b", "old", guard(1, 9)), gone("c", guard(1, 9)), gone("d", guard(2, 1)), put("e", "late", guard(1, 200)))
	for range 2 {
		s.check(s.Forget(t.Context(), 2))
		s.expect("items", put("a", "new", guard(2, 1)), gone("d", guard(2, 1)))
		s.reopen()
	}
}

func testTombstones(t *testing.T, s *suite) {
	s.write(put("a", "x", guard(1, 1)))
	s.write(gone("a", guard(1, 4)), gone("b", guard(1, 5)))
	s.reopen()
	s.write(put("a", "late", guard(1, 3)), put("b", "late", guard(1, 5)))
	s.expect("items", gone("a", guard(1, 4)), gone("b", guard(1, 5)))
	s.write(put("a", "again", guard(1, 6)))
	s.expect("items", put("a", "again", guard(1, 6)), gone("b", guard(1, 5)))
	s.check(s.Purge(t.Context(), guard(1, 5)))
	s.expect("items", put("a", "again", guard(1, 6)), gone("b", guard(1, 5)))
	s.check(s.Purge(t.Context(), guard(1, 9))) // a live document stays, whatever its guard is
	s.expect("items", put("a", "again", guard(1, 6)))
}

func testEntries(t *testing.T, s *suite) {
	var all []sink.Item
	for i := range 25 {
		all = append(all, put(fmt.Sprintf("n%02d", i), "x", guard(1, 1)))
	}
	s.write(all...)
	// A kind whose name begins with that of another is apart.
	other := all[3]
	other.Kind = "items2"
	s.write(other)
	s.expect("items2", other)
	s.expect("notes")
	var got []sink.Entry
	for after := ""; ; {
		page, err := s.Entries(t.Context(), "items", after, 10)
		s.check(err)
		if got = append(got, page...); len(page) < 10 {
			break
		}
		after = page[9].Name
	}
	var want []sink.Entry
	for _, it := range all {
		want = append(want, entryOf(it))
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	found, err := s.Lookup(t.Context(), "items", []string{"n07", "none", "n03"})
	s.check(err)
	slices.SortFunc(found, func(a, b sink.Entry) int { return cmp.Compare(a.Name, b.Name) })
	if diff := gocmp.Diff([]sink.Entry{want[3], want[7]}, found); diff != "" {
		t.Errorf("looked up (-want +got):\n%s", diff)
	}
	if found, err := s.Lookup(t.Context(), "notes", []string{"n07"}); err != nil || len(found) > 0 {
		t.Errorf("another kind has %v %v", found, err)
	}
}

func testOddNames(_ *testing.T, s *suite) {
	names := []string{"A", "a", "a b", "a/b", "a/b/c", "a\xffb", "aä", "projects/p/secrets/" + fmt.Sprintf("%0200d", 1), "ж", "\U0001F600"}
	slices.Sort(names)
	var all []sink.Item
	for _, name := range names {
		all = append(all, put(name, name, guard(1, 1)))
	}
	s.write(all...)
	s.write(all...)
	s.expect("items", all...)
}

// ended reports the error of a Follower that nobody has stopped.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was stopped
	}
	return err
}
