package copies_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// TestOwnedTwice: each process that makes copies reports the names that are owned in two regions, until
// one of them deletes its record.
func TestOwnedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		o.set("a", "theirs")
		o.set("b", "theirs")
		o.set("c", "theirs")
		for _, name := range []string{"a", "b", "d"} {
			s.Put(t, "books", map[string]string{"_id": name, "title": "mine"})
		}
		ended := make(chan error, 1)
		for _, server := range []string{"first", "next"} {
			ctx, stop := context.WithCancel(t.Context())
			f := follow(o, s)
			go func() { ended <- f.Run(ctx) }()
			time.Sleep(time.Minute)
			if r := f.Report(); r.Both != 2 {
				t.Errorf("the %s server reports %+v", server, r)
			}
			if server == "next" {
				if err := s.Store.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("a")}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if r := f.Report(); r.Both != 1 {
					t.Errorf("after a delete here reported %+v", r)
				}
				o.set("b", "")
				time.Sleep(time.Minute)
				if r := f.Report(); r.Both != 0 {
					t.Errorf("after a delete there reported %+v", r)
				}
			}
			stop()
			<-ended
		}
	})
}

// moved returns a document in a state of a move.
func moved(id, title string, move region.Move) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "title", Value: title}, {Key: "move", Value: move.String()}}
}

// setMove changes a record of the owner together with the state of its move.
func (o *owner) setMove(t *testing.T, name, title string, move region.Move) {
	t.Helper()
	doc, err := bson.Marshal(moved(name, title, move))
	if err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records[name] = title
	for s := range o.streams {
		s.events <- copies.Event{Type: vrunner.EventPut, Name: name, Doc: doc}
	}
}

// TestMovesAreNotOwnedTwice: both regions have a record that moves, and a copy can be older than the move.
// Only what stays so is reported.
func TestMovesAreNotOwnedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		ctx, stop := context.WithCancel(t.Context())
		f := followKind(o, s, region.Kind{Field: "home", Move: "move"})
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		const id, nonce = "v1.1.i", "n"
		s.Put(t, "books", moved("comes", "mine", region.Move{Step: region.Arriving, Region: "eu", ID: id, Nonce: nonce}))
		s.Put(t, "books", moved("came", "mine", region.Move{Step: region.Arrived, Region: "eu", ID: id, Nonce: nonce}))
		s.Put(t, "books", moved("goes", "mine", region.Move{Step: region.Left, Region: "eu", ID: id, Nonce: nonce}))
		time.Sleep(time.Second)
		o.setMove(t, "comes", "theirs", region.Move{Step: region.Leaving, Region: "us", ID: id})
		o.setMove(t, "came", "theirs", region.Move{Step: region.Leaving, Region: "us", ID: id}) // an old copy
		o.setMove(t, "goes", "theirs", region.Move{Step: region.Arrived, Region: "us", ID: id, Nonce: nonce})
		time.Sleep(time.Second)
		if r := f.Report(); r.Both != 0 {
			t.Errorf("reported %+v", r)
		}
		time.Sleep(time.Minute)
		if r := f.Report(); r.Both != 1 {
			t.Errorf("after a minute reported %+v", r)
		}
		o.setMove(t, "came", "theirs", region.Move{Step: region.Left, Region: "us", ID: id, Nonce: nonce})
		time.Sleep(time.Minute)
		if r := f.Report(); r.Both != 0 {
			t.Errorf("after the copy follows reported %+v", r)
		}
		stop()
		<-ended
	})
}

// TestKeptUntilTheNewOwner: a third region keeps the copy of a record that has moved until it shows the
// record of the new owner, but not for ever.
func TestKeptUntilTheNewOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		ctx, stop := context.WithCancel(t.Context())
		f := followKind(o, s, region.Kind{Field: "home", Move: "move"})
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(time.Second)
		left := region.Move{Step: region.Left, Region: "asia", ID: "v1.1.i", Nonce: "n"}
		for _, name := range []string{"moves", "vanishes", "deleted"} {
			o.setMove(t, name, "theirs", left)
		}
		o.setMove(t, "deleted", "theirs", region.Move{})
		time.Sleep(time.Second)
		for _, name := range []string{"moves", "vanishes", "deleted"} {
			o.set(name, "")
		}
		time.Sleep(time.Second)
		has := func(name string) bool {
			_, err := s.Get(ctx, region.CopiesKind("books"), region.CopyKey("eu", name))
			return err == nil
		}
		if !has("moves") || !has("vanishes") || has("deleted") {
			t.Errorf("kept: %v %v %v", has("moves"), has("vanishes"), has("deleted"))
		}
		s.Put(t, region.CopiesKind("books"), moved(region.CopyKey("asia", "moves"), "theirs", region.Move{Step: region.Arrived, Region: "eu", ID: left.ID, Nonce: left.Nonce}))
		time.Sleep(20 * time.Second)
		if has("moves") || !has("vanishes") {
			t.Errorf("once the new owner is shown: %v %v", has("moves"), has("vanishes"))
		}
		time.Sleep(time.Minute)
		if has("vanishes") {
			t.Error("it stays for ever")
		}
		stop()
		<-ended
	})
}
