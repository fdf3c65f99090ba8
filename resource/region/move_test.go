package region_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

var moving = map[string]region.Kind{"books": {Field: "home", Move: "move"}}

// moveWorld is region us, whose books can move to eu and asia.
func moveWorld(t testing.TB) (*region.Store, *sampletest.Store) {
	t.Helper()
	data := sampletest.New(t, "books", region.CopiesKind("books"))
	return region.Over(data, "us", []string{"eu", "asia"}, moving).Moving("v1"), data
}

// moved returns a book in a state of a move.
func moved(name, home string, move region.Move) bson.D {
	d := book(name, home)
	if move.Step != "" {
		d = append(d, bson.E{Key: "move", Value: move.String()})
	}
	return d
}

// putMoved stores a book of us, or a copy of another region, in a state of a move.
func putMoved(t testing.TB, data *sampletest.Store, name, in, home string, move region.Move) {
	t.Helper()
	kind, key, doc := "books", name, moved(name, home, move)
	if in != "us" {
		kind, key = region.CopiesKind("books"), region.CopyKey(in, name)
		doc[0].Value = key
	}
	if err := data.Write(t.Context(), []record.Mutation{{Kind: kind, Key: record.StringKey(key), Doc: raw(t, doc)}}); err != nil {
		t.Fatal(err)
	}
}

// stateOf returns the state of the move of a book of us.
func stateOf(t testing.TB, data *sampletest.Store, name string) region.Move {
	t.Helper()
	rec, err := data.Get(t.Context(), "books", name)
	if err != nil {
		t.Fatal(err)
	}
	return moving["books"].MoveOf(rec.Doc)
}

// reasonOf returns the reason of a refusal and the region in it.
func reasonOf(err error) string {
	answer, ok := refusal.In(err)
	if !ok {
		return fmt.Sprint(err)
	}
	reason, meta := refusal.Of(answer)
	return string(reason) + " " + meta[refusal.MetaRegion]
}

func TestMoveText(t *testing.T) {
	t.Parallel()
	begun := time.UnixMilli(1_796_000_000_123)
	id := region.NewID("v1.2", begun)
	if version, at := region.OfID(id); version != "v1.2" || !at.Equal(begun) {
		t.Errorf("the id %s is of %s at %s", id, version, at)
	}
	if id == region.NewID("v1.2", begun) {
		t.Error("two moves have one id")
	}
	for _, m := range []region.Move{{}, {Step: region.Leaving, Region: "eu", ID: id}, {Step: region.Left, Region: "eu", ID: id, Nonce: "n"}, {Step: region.Arriving, Region: "eu", ID: id, Nonce: "n"}, {Step: region.Arrived, Region: "eu", ID: id, Nonce: "n"}} {
		if got := region.ParseMove(m.String()); got != m {
			t.Errorf("%+v becomes %+v", m, got)
		}
	}
	for _, text := range []string{"leaving", "leaving:eu", "left:eu:i", "gone:eu:i:n", "leaving:eu:i:n", "a:b:c:d:e"} {
		if got := region.ParseMove(text); got != (region.Move{}) {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for _, id := range []string{"", "v1", "v1.x.y", "."} {
		if version, at := region.OfID(id); version != "" || !at.IsZero() {
			t.Errorf("%q is of %q at %s", id, version, at)
		}
	}
}

// TestBeginMove: a change of the region freezes the record, and only the way back cancels it.
func TestBeginMove(t *testing.T) {
	t.Parallel()
	s, data := moveWorld(t)
	forged := append(book("forged", "us"), bson.E{Key: "move", Value: "arriving:eu:forged:forged"})
	if err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("forged"), Doc: raw(t, forged), Absent: true}}); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, data, "forged"); got.Step != "" {
		t.Errorf("a client creates a record in the state %+v", got)
	}
	putMoved(t, data, "b", "us", "us", region.Move{})
	change := func(title, home string, claimed string) error {
		rec, err := s.Get(vrunner.Changing(t.Context()), "books", "b")
		if err != nil {
			return err
		}
		doc := bson.D{{Key: "_id", Value: "b"}, {Key: "title", Value: title}, {Key: "home", Value: home}}
		if claimed != "" {
			doc = append(doc, bson.E{Key: "move", Value: claimed})
		}
		return s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Doc: raw(t, doc), Match: record.MatchDoc(rec.Doc)}})
	}
	if err := change("new", "us", "arrived:eu:forged:forged"); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, data, "b"); got.Step != "" {
		t.Errorf("a client sets the state of a move: %+v", got)
	}
	if err := change("new", "mars", ""); err == nil || !strings.Contains(err.Error(), "mars") {
		t.Errorf("a move to an unknown region: %v", err)
	}
	if err := change("new", "eu", ""); err != nil {
		t.Fatal(err)
	}
	first := stateOf(t, data, "b")
	if version, begun := region.OfID(first.ID); first.Step != region.Leaving || first.Region != "eu" || version != "v1" || begun.IsZero() {
		t.Errorf("it is %+v", first)
	}
	for _, home := range []string{"eu", ""} {
		if got := reasonOf(change("newer", home, "")); got != "MOVING eu" {
			t.Errorf("a write of a record that leaves: %s", got)
		}
	}
	// Writes without a condition, and with one on a field.
	for what, m := range map[string]record.Mutation{
		"put":        {Doc: raw(t, book("b", "eu"))},
		"put a part": {Doc: raw(t, book("b", "eu")), Match: &record.Match{Path: "title", Value: bson.RawValue{Type: bson.TypeString, Value: bsonString("new")}}},
		"exists":     {Doc: raw(t, book("b", "eu")), Exists: true},
	} {
		m.Kind, m.Key = "books", record.StringKey("b")
		if got := reasonOf(s.Write(t.Context(), []record.Mutation{m})); got != "MOVING eu" {
			t.Errorf("%s: %s", what, got)
		}
	}
	if err := change("new", "asia", ""); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, data, "b"); got.Region != "asia" || got.ID == first.ID {
		t.Errorf("another destination keeps the move: %+v", got)
	}
	if err := change("new", "us", ""); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, data, "b"); got.Step != "" {
		t.Errorf("after a cancel it is %+v", got)
	}
	if err := change("again", "eu", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Exists: true}}); err != nil {
		t.Errorf("a delete of a record that leaves: %v", err)
	}
	if _, err := data.Get(t.Context(), "books", "b"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("after the delete: %v", err)
	}
	large := append(book("large", "us"), bson.E{Key: "payload", Value: make([]byte, 5<<20)})
	data.Put(t, "books", large)
	next := append(book("large", "eu"), bson.E{Key: "payload", Value: make([]byte, 5<<20)})
	if err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("large"), Doc: raw(t, next), Exists: true}}); err == nil || !strings.Contains(err.Error(), "cannot move") {
		t.Errorf("a large record moves: %v", err)
	}
}

func bsonString(text string) []byte {
	_, value, _ := bson.MarshalValue(text)
	return value
}

// TestNotOwned: what this region has reserved or given away is shown, and no write reaches it.
func TestNotOwned(t *testing.T) {
	t.Parallel()
	const id, nonce = "v1.1.i", "n"
	arriving := region.Move{Step: region.Arriving, Region: "eu", ID: id, Nonce: nonce}
	left := region.Move{Step: region.Left, Region: "eu", ID: id, Nonce: nonce}
	for name, c := range map[string]struct {
		own, copied region.Move
		noCopy      bool
		shows, want string
	}{
		"reserved":                 {own: arriving, copied: region.Move{Step: region.Leaving, Region: "us", ID: id}, shows: "eu", want: "NOT_OWNER eu"},
		"reserved, given":          {own: arriving, copied: region.Move{Step: region.Left, Region: "us", ID: id, Nonce: nonce}, shows: "us", want: "MOVING us"},
		"reserved, without a copy": {own: arriving, noCopy: true, shows: "us", want: "MOVING us"},
		"left":                     {own: left, copied: region.Move{Step: region.Arrived, Region: "us", ID: id, Nonce: nonce}, shows: "eu", want: "NOT_OWNER eu"},
		"left, not arrived":        {own: left, copied: region.Move{Step: region.Arriving, Region: "us", ID: id, Nonce: nonce}, shows: "us", want: "MOVING eu"},
		"left, without a copy":     {own: left, noCopy: true, shows: "us", want: "MOVING eu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, data := moveWorld(t)
			data.Put(t, "books", append(book("b", "us"), bson.E{Key: "move", Value: c.own.String()}))
			if !c.noCopy {
				putMoved(t, data, "b", "eu", "eu", c.copied)
			}
			before, err := data.Get(t.Context(), "books", "b")
			if err != nil {
				t.Fatal(err)
			}
			rec, err := s.Get(t.Context(), "books", "b")
			if err != nil || titles(t, []record.Record{rec})[0] != "b of "+c.shows {
				t.Errorf("reads %v, %v", rec, err)
			}
			if recs, err := s.List(t.Context(), "books", "", "", 1); err != nil || len(recs) != 1 || titles(t, recs)[0] != "b of "+c.shows {
				t.Errorf("lists %v, %v", recs, err)
			}
			if _, err := s.Get(vrunner.Changing(t.Context()), "books", "b"); reasonOf(err) != c.want {
				t.Errorf("a read before a change: %s", reasonOf(err))
			}
			for what, m := range map[string]record.Mutation{
				"delete":             {Exists: true},
				"delete in any case": {},
				"put":                {Doc: raw(t, book("b", "us"))},
				"change":             {Doc: raw(t, book("b", "us")), Match: record.MatchDoc(before.Doc)},
				"change a part":      {Doc: raw(t, book("b", "us")), Match: &record.Match{Path: "home", Value: before.Doc.Lookup("home")}},
			} {
				m.Kind, m.Key = "books", record.StringKey("b")
				if got := reasonOf(s.Write(t.Context(), []record.Mutation{m})); got != c.want {
					t.Errorf("%s: %s, want %s", what, got, c.want)
				}
			}
			if err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Doc: raw(t, book("b", "us")), Absent: true}}); !errors.Is(err, record.ErrExists) {
				t.Errorf("the name is free: %v", err)
			}
			if after, err := data.Get(t.Context(), "books", "b"); err != nil || string(after.Doc) != string(before.Doc) {
				t.Errorf("it has changed: %v", err)
			}
			// Background work sees only what is owned.
			alone := s.Alone()
			if _, err := alone.Get(t.Context(), "books", "b"); !errors.Is(err, record.ErrNotFound) {
				t.Errorf("background work reads it: %v", err)
			}
			if err := alone.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Exists: true}}); !strings.HasPrefix(reasonOf(err), "MOVING ") {
				t.Errorf("background work deletes it: %v", err)
			}
		})
	}
}

// TestAlone: lists of background work have full pages of owned records.
func TestAlone(t *testing.T) {
	t.Parallel()
	s, data := moveWorld(t)
	var want []string
	for n := range 20 {
		name := fmt.Sprintf("b%02d", n)
		move := region.Move{}
		if n%3 != 0 {
			move = region.Move{Step: region.Arriving, Region: "eu", ID: "v1.1.i", Nonce: "n"}
		} else {
			want = append(want, name+" of us")
		}
		putMoved(t, data, name, "us", "us", move)
		putMoved(t, data, name, "eu", "eu", region.Move{})
	}
	for _, limit := range []int{1, 2, 3, 7, 20} {
		var got []string
		for after := ""; ; {
			recs, err := s.Alone().List(t.Context(), "books", "", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, titles(t, recs)...)
			if len(recs) < limit {
				break
			}
			after, _ = recs[len(recs)-1].Key.Name()
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages of %d: %v, want %v", limit, got, want)
		}
		var bounded []string
		for after, more := "", true; more; {
			recs, again, err := s.Alone().ListBounded(t.Context(), "books", "", after, limit, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			bounded = append(bounded, titles(t, recs)...)
			if more = again; len(recs) > 0 {
				after, _ = recs[len(recs)-1].Key.Name()
			} else if more {
				t.Fatal("an empty page has no place to go on")
			}
		}
		if fmt.Sprint(bounded) != fmt.Sprint(want) {
			t.Errorf("bounded pages of %d: %v, want %v", limit, bounded, want)
		}
	}
}

// TestMoveBetween: a move that comes between the read and the write of a client is not overwritten.
func TestMoveBetween(t *testing.T) {
	t.Parallel()
	const id = "v1.1.i"
	for what, c := range map[string]struct {
		there bool // before the move
		move  region.Move
		m     record.Mutation
		want  string
	}{
		"put":        {true, region.Move{Step: region.Leaving, Region: "eu", ID: id}, record.Mutation{Doc: raw(t, book("b", "eu"))}, "MOVING eu"},
		"put a part": {true, region.Move{Step: region.Leaving, Region: "eu", ID: id}, record.Mutation{Doc: raw(t, book("b", "eu")), Match: &record.Match{Path: "title", Value: bson.RawValue{Type: bson.TypeString, Value: bsonString("of eu")}}}, record.ErrMismatch.Error()},
		"delete":     {true, region.Move{Step: region.Left, Region: "eu", ID: id, Nonce: "n"}, record.Mutation{Exists: true}, "MOVING eu"},
		"put, new":   {false, region.Move{Step: region.Arriving, Region: "eu", ID: id, Nonce: "n"}, record.Mutation{Doc: raw(t, book("b", "us"))}, "MOVING us"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, data := moveWorld(t)
			if c.there {
				putMoved(t, data, "b", "us", "eu", region.Move{})
			}
			between := true
			data.BeforeWrite(func([]record.Mutation) error {
				if between {
					between = false
					putMoved(t, data, "b", "us", "eu", c.move)
				}
				return nil
			})
			c.m.Kind, c.m.Key = "books", record.StringKey("b")
			if err := s.Write(t.Context(), []record.Mutation{c.m}); reasonOf(err) != c.want && !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("answered %v, want %s", err, c.want)
			}
			if got := stateOf(t, data, "b"); got != c.move {
				t.Errorf("it is %+v", got)
			}
		})
	}
}

// TestCancelBetween: a cancel that makes the record too large to compare does not take back a record that
// was given away meanwhile. Only the revision is the same.
func TestCancelBetween(t *testing.T) {
	t.Parallel()
	s, data := moveWorld(t)
	const id = "v1.1.i"
	data.Put(t, "books", append(moved("b", "eu", region.Move{Step: region.Leaving, Region: "eu", ID: id}), bson.E{Key: "revision", Value: int64(1)}))
	left := region.Move{Step: region.Left, Region: "eu", ID: id, Nonce: "n"}
	between := true
	data.BeforeWrite(func([]record.Mutation) error {
		if between {
			between = false
			data.Put(t, "books", append(moved("b", "eu", left), bson.E{Key: "revision", Value: int64(1)}))
		}
		return nil
	})
	large := append(book("b", "us"), bson.E{Key: "revision", Value: int64(2)}, bson.E{Key: "payload", Value: make([]byte, 9<<20)})
	revision := record.Match{Path: "revision", Value: raw(t, bson.D{{Key: "v", Value: int64(1)}}).Lookup("v")}
	err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b"), Doc: raw(t, large), Match: &revision}})
	if reasonOf(err) != "MOVING eu" {
		t.Errorf("the cancel is answered with %v", err)
	}
	if got := stateOf(t, data, "b"); got != left {
		t.Errorf("it is %+v", got)
	}
}

// TestDeletedAfterArrival: a record that has arrived and was deleted is gone here, although the old owner
// still has it. Pages stay full.
func TestDeletedAfterArrival(t *testing.T) {
	t.Parallel()
	s, data := moveWorld(t)
	left := region.Move{Step: region.Left, Region: "us", ID: "v1.1.i", Nonce: "n"}
	var want []string
	for n := range 20 {
		name := fmt.Sprintf("b%02d", n)
		if n%4 == 0 {
			putMoved(t, data, name, "eu", "eu", region.Move{})
			want = append(want, name+" of eu")
		} else {
			putMoved(t, data, name, "eu", "eu", left)
		}
	}
	for _, limit := range []int{1, 2, 5, 20} {
		var got []string
		for after := ""; ; {
			recs, err := s.List(t.Context(), "books", "", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, titles(t, recs)...)
			if len(recs) < limit {
				break
			}
			after, _ = recs[len(recs)-1].Key.Name()
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages of %d: %v, want %v", limit, got, want)
		}
	}
	for _, ctx := range []context.Context{t.Context(), vrunner.Changing(t.Context())} {
		if _, err := s.Get(ctx, "books", "b01"); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("it is read: %v", err)
		}
	}
	if err := s.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("b01"), Doc: raw(t, book("b01", "us")), Absent: true}}); err != nil {
		t.Errorf("its name is not free: %v", err)
	}
}
