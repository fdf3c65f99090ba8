package sink_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/engine/sink/sinktest"
	"dbcontroller.dev/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Exercise(t, func(*testing.T) sinktest.Backend { return sinktest.Backend{Sink: sinktest.NewMemory()} })
}

// run starts a Follower of a world.
func run(t *testing.T, source sink.Source, s sink.Sink, cfg sink.Config) *sink.Follower {
	t.Helper()
	f := sink.New(source, s, cfg)
	t.Cleanup(sinktest.Run(t, f))
	return f
}

func level(t *testing.T, f *sink.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.Wait(ctx, time.Now()); err != nil {
		t.Fatalf("%v; %+v", err, f.Status())
	}
}

// TestMisbehaving: a sink that fails at every point, and meets late writes, ends up right.
func TestMisbehaving(t *testing.T) {
	t.Parallel()
	w, m := sinktest.NewWorld(t), sinktest.NewMemory()
	m.Misbehave(7)
	for i := range 800 {
		w.Put("items", fmt.Sprintf("n%03d", i), "first")
	}
	f := run(t, w.Source, m, sinktest.Config())
	for i := range 800 {
		if i%3 == 0 {
			w.Delete("items", fmt.Sprintf("n%03d", i))
		} else {
			w.Put("items", fmt.Sprintf("n%03d", i), fmt.Sprint("second ", i))
		}
	}
	level(t, f)
	if faults := m.Behave(); faults < 3 {
		t.Errorf("%d faults were injected", faults)
	}
	level(t, f)
	for i := range 800 {
		doc, there := m.Document("items", fmt.Sprintf("n%03d", i))
		if there == (i%3 == 0) || there && doc["text"][0] != fmt.Sprint("second ", i) {
			t.Errorf("n%03d: %v %v", i, doc, there)
		}
	}
}

// stuck is a source whose changes arrive only after free is closed.
type stuck struct {
	sinktest.Direct
	free chan struct{}
}

func (s stuck) Watch(ctx context.Context, from record.Position) (record.Stream, error) {
	in, err := s.Direct.Watch(ctx, from)
	return stuckStream{in, s.free}, err
}

type stuckStream struct {
	record.Stream
	free chan struct{}
}

func (s stuckStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	select {
	case <-s.free:
		return s.Stream.Next(ctx)
	case <-ctx.Done():
		return record.ChangeBatch{}, ctx.Err()
	}
}

// TestNotLevelWithoutChanges: while no changes arrive, the follower does not say that it is level.
func TestNotLevelWithoutChanges(t *testing.T) {
	t.Parallel()
	w, m := sinktest.NewWorld(t), sinktest.NewMemory()
	source := stuck{w.Source, make(chan struct{})}
	w.Put("items", "a", "before")
	f := run(t, source, m, sinktest.Config())
	for st := f.Status(); st.Generation == 0 || st.Scan != nil; st = f.Status() {
		time.Sleep(time.Millisecond) // the scan needs no changes
	}
	w.Put("items", "b", "after")
	since := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.Wait(ctx, since); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("level without changes: %v", err)
	}
	close(source.free)
	level(t, f)
	if _, there := m.Document("items", "b"); !there {
		t.Error("level, and the record is missing")
	}
}

// TestFailedRecords: a record without a document is there, and counts until it is gone or has one.
func TestFailedRecords(t *testing.T) {
	t.Parallel()
	w, m := sinktest.NewWorld(t), sinktest.NewMemory()
	cfg := sinktest.Config()
	plain := cfg.Kinds["items"]
	cfg.Kinds["items"] = func(r record.Record) (sink.Document, error) {
		if r.Doc.Lookup("text").StringValue() == "bad" {
			return nil, errors.New("no document")
		}
		return plain(r)
	}
	for _, name := range []string{"a", "b", "c"} {
		w.Put("items", name, "bad")
	}
	f := run(t, w.Source, m, cfg)
	level(t, f)
	if doc, there := m.Document("items", "a"); !there || len(doc) > 0 || f.Status().Failed != 3 {
		t.Errorf("a bad record: %v %v, %d failed", doc, there, f.Status().Failed)
	}
	w.Put("items", "a", "good")
	w.Delete("items", "b")
	level(t, f)
	if doc, _ := m.Document("items", "a"); len(doc) != 1 || f.Status().Failed != 1 {
		t.Errorf("afterwards: %v, %d failed", doc, f.Status().Failed)
	}
}

// TestPurge: tombstones end once no late write can come.
func TestPurge(t *testing.T) {
	t.Parallel()
	w, m := sinktest.NewWorld(t), sinktest.NewMemory()
	cfg := sinktest.Config()
	cfg.KeepTombstones = time.Millisecond
	f := run(t, w.Source, m, cfg)
	w.Put("items", "a", "x")
	level(t, f)
	w.Delete("items", "a")
	level(t, f)
	deadline := time.Now().Add(time.Minute)
	for i := 0; ; i++ {
		entries, err := m.Entries(t.Context(), "items", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %v", entries)
		}
		w.Put("notes", "n", fmt.Sprint(i)) // each change lets the position move on
		level(t, f)
	}
}

// unread is a source whose records can be read only after free is closed.
type unread struct {
	sinktest.Direct
	free chan struct{}
}

func (s unread) Scan(ctx context.Context, kind string, from record.Cursor, limit int, notBefore record.Version) (record.Page, error) {
	select {
	case <-s.free:
		return s.Direct.Scan(ctx, kind, from, limit, notBefore)
	case <-ctx.Done():
		return record.Page{}, ctx.Err()
	}
}

// TestNotLevelWithoutScan: changes alone do not make a sink level, since it lacks older records.
func TestNotLevelWithoutScan(t *testing.T) {
	t.Parallel()
	w, m := sinktest.NewWorld(t), sinktest.NewMemory()
	source := unread{w.Source, make(chan struct{})}
	w.Put("items", "a", "before")
	f := run(t, source, m, sinktest.Config())
	for f.Status().Generation == 0 {
		time.Sleep(time.Millisecond) // it begins to scan
	}
	w.Put("items", "b", "after")
	for there := false; !there; _, there = m.Document("items", "b") {
		time.Sleep(time.Millisecond) // a change needs no scan
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.Wait(ctx, time.Now()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("level without the scan: %v", err)
	}
	close(source.free)
	level(t, f)
	if _, there := m.Document("items", "a"); !there {
		t.Error("level, and the record is missing")
	}
}
