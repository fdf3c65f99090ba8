package sealed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// TestStray: a record under a former key, which somebody put there past the database's own check,
// is read by who has that key, and the promise is taken back. The next rotation mends it. Who lacks
// the former key goes on next to it.
func TestStray(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002"), record.Shape{})
	doc := w.put("u1", bson.E{Key: "n", Value: int32(2)})
	w.turn("r1", "a002")
	w.check(w.sealer.Finish(t.Context(), "r1")) // without a pass
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a002" || sealed.Under(w.stored("u1")) != "a001" {
		t.Fatalf("%+v, %v, and it is under %s", st, err, sealed.Under(w.stored("u1")))
	}
	without := sealed.New("v1", fixedKeys(keysOf(t, "a002", "a002")), w.notes)
	for range 2 {
		if got, err := w.get("u1"); err != nil || string(got) != string(doc) {
			t.Errorf("it is read as %s, %v", got, err)
		}
		st, err := w.sealer.State(t.Context())
		if err != nil || st.Promised() != "" || st.Key != "a002" || fmt.Sprint(st.InUse()) != "[a001 a002]" || st.Run == "r1" || st.Run == "" {
			t.Errorf("after it was found: %+v, %v", st, err)
		}
		if err := without.Check(t.Context()); err != nil {
			t.Errorf("a process without the former key: %v", err)
		}
	}
	w.check(w.sealer.Finish(t.Context(), "r1")) // by who has not seen that
	if st, _ := w.sealer.State(t.Context()); st.Promised() != "" {
		t.Error("the rotation before makes the promise again")
	}
	w.turn("r2", "a002")
	w.bring()
	w.check(w.sealer.Finish(t.Context(), "r2"))
	if got, err := w.get("u1"); err != nil || string(got) != string(doc) || sealed.Under(w.stored("u1")) != "a002" {
		t.Errorf("after another pass: %s, %v, under %s", got, err, sealed.Under(w.stored("u1")))
	}
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a002" || len(st.Strays) > 0 {
		t.Errorf("after another pass: %+v, %v", st, err)
	}
}

// TestStrayBehindThePass: a stray that is read while a run goes on, whose pass is past it, is not
// forgotten with the end of that run.
func TestStrayBehindThePass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001", "a002", "a003"), record.Shape{})
	w.put("u1")
	w.turn("r1", "a002")
	w.bring()
	w.stray("u2", "a003")
	if _, err := w.get("u2"); err != nil {
		t.Errorf("it is read: %v", err)
	}
	if doc, err := w.sealer.Again(t.Context(), "r1", w.tok, record.Record{Kind: "users", Key: record.StringKey("u1"), Doc: w.stored("u1")}); doc != nil || err != nil {
		t.Errorf("the pass does not go on: %s, %v", doc, err)
	}
	w.check(w.sealer.Finish(t.Context(), "r1"))
	st, err := w.sealer.State(t.Context())
	if err != nil || st.Promised() != "" || st.Run == "r1" || fmt.Sprint(st.InUse()) != "[a002 a003]" {
		t.Errorf("after the run: %+v, %v", st, err)
	}
	w.turn("r2", "a002")
	w.bring()
	w.check(w.sealer.Finish(t.Context(), "r2"))
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a002" || sealed.Under(w.stored("u2")) != "a002" {
		t.Errorf("after another run: %+v, %v", st, err)
	}
}

// stray writes a record under a key past what the database takes.
func (w *world) stray(id, key string) {
	w.t.Helper()
	w.check(w.store.Require(w.t.Context(), []record.Token{w.tok}, record.Label{Field: sealed.Field, Begins: [][]byte{append([]byte{1}, key...)}}))
	notes := &recordtest.Notes{}
	s := sealed.New("v1", fixedKeys(keysOf(w.t, key, key)), notes)
	notes.Begin(w.t, s)
	w.check(s.Client(w.store).Write(w.t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey(id), Doc: docOf(w.t, id)}}))
}

// TestStrayThatCannotBeNoted is read all the same, and the log says why the promise is wrong: once
// for each reason, however many records there are.
func TestStrayThatCannotBeNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, keysOf(t, "a001", "a001", "a002", "a003"), record.Shape{})
		w.stray("u1", "a002")
		w.stray("u2", "a002")
		w.stray("u3", "a003")
		notes := &unnotable{Notes: w.notes}
		core, logged := observer.New(zap.WarnLevel)
		s := sealed.New("v1", fixedKeys(w.keys), notes)
		s.Log = zap.New(core)
		forbidden, away := errors.New("not authorized"), errors.New("no primary")
		for i, step := range []struct {
			ids   []string
			why   error
			lines int
		}{
			{[]string{"u1", "u2"}, forbidden, 1}, {[]string{"u1", "u2"}, forbidden, 1}, {[]string{"u1"}, away, 2},
			{[]string{"u1", "u2"}, nil, 2}, {[]string{"u3"}, away, 3},
		} {
			notes.err = step.why
			for _, id := range step.ids {
				if _, err := s.Client(w.store).Get(t.Context(), w.tok, record.StringKey(id)); err != nil {
					t.Errorf("step %d: %s: %v", i, id, err)
				}
				time.Sleep(2 * time.Second)
			}
			if n := logged.Len(); n != step.lines {
				t.Errorf("step %d: %d lines, want %d", i, n, step.lines)
			}
		}
		fields := logged.All()[0].ContextMap()
		if fields["key"] != "a002" || !strings.Contains(fmt.Sprint(fields["error"]), "not authorized") {
			t.Errorf("it says %v", fields)
		}
		if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "" {
			t.Errorf("in the end: %+v, %v", st, err)
		}
	})
}

// unnotable are notes that cannot be changed.
type unnotable struct {
	*recordtest.Notes
	err error
}

func (u *unnotable) Change(ctx context.Context, change func(*sealed.State) (bool, error)) error {
	if u.err != nil {
		return u.err
	}
	return u.Notes.Change(ctx, change)
}

// TestPlainStray: a plain record among encrypted ones is anybody's, and refused, until an operator
// answers for it.
func TestPlainStray(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keysOf(t, "a001", "a001"), record.Shape{})
	w.check(w.store.Write(t.Context(), record.Tokens{"users": w.tok}, []record.Mutation{{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")}}))
	plain := record.Record{Kind: "users", Key: record.StringKey("u1"), Doc: docOf(t, "u1")}
	_, err := w.get("u1")
	if again, errAgain := w.sealer.Again(t.Context(), "", w.tok, plain); !errors.Is(err, sealed.ErrTampered) || !errors.Is(errAgain, sealed.ErrTampered) || again != nil {
		t.Errorf("a plain record is taken for one of ours: %v, %v, %v", err, again, errAgain)
	}
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a001" {
		t.Errorf("a writer of a plain record ends the promise: %+v, %v", st, err)
	}
	w.check(w.sealer.Admit(t.Context(), sealed.Off))
	if _, err := w.get("u1"); err != nil {
		t.Errorf("admitted: %v", err)
	}
	w.turn("r1", "a001")
	w.bring()
	w.check(w.sealer.Finish(t.Context(), "r1"))
	if st, err := w.sealer.State(t.Context()); err != nil || st.Promised() != "a001" || sealed.Under(w.stored("u1")) != "a001" {
		t.Errorf("after a pass: %+v, %v, under %s", st, err, sealed.Under(w.stored("u1")))
	}
}
