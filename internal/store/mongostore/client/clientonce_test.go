package client_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/client"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestOnceLostAnswers: whatever answers get lost, it is done once, and a caller who asks
// again is told so.
func TestOnceLostAnswers(t *testing.T) {
	t.Parallel()
	recs := []record.Record{{Kind: "m", Key: record.StringKey("a"), Doc: storetest.Raw(t, bson.D{{Key: "_id", Value: "a"}})}}
	gone := func(t *testing.T, c *client.Client, tok record.Token) {
		t.Helper()
		if err := c.Write(t.Context(), storetest.TokensOf(tok), []record.Mutation{{Kind: "m", Key: recs[0].Key, Exists: true}}); err != nil {
			t.Errorf("delete: %v", err)
		}
		if made, err := c.CreateOnce(t.Context(), storetest.TokensOf(tok), "start", recs); made || err != nil {
			t.Errorf("again: made %t, %v", made, err)
		}
		if _, err := c.Get(t.Context(), tok, recs[0].Key); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("the record that was deleted: %v", err)
		}
	}
	for _, command := range []string{"commitTransaction", "documents", "updates"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			e, l := storetest.NewLossyEngine(t)
			tok, c := e.Managed("m"), e.NS.Client()
			l.Lose(command, 1)
			if made, err := c.CreateOnce(t.Context(), storetest.TokensOf(tok), "start", recs); !made || err != nil {
				t.Errorf("made %t, %v", made, err)
			}
			if l.Lost.Load() == 0 {
				t.Error("nothing was lost")
			}
			gone(t, c, tok)
		})
	}
	t.Run("commit that nobody waits for", func(t *testing.T) {
		t.Parallel()
		e, l := storetest.NewLossyEngine(t)
		tok, c := e.Managed("m"), e.NS.Client()
		l.Lose("commitTransaction", 1<<40)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.Then(cancel)
		if made, err := c.CreateOnce(ctx, storetest.TokensOf(tok), "start", recs); made || !errors.Is(err, record.ErrUnknown) {
			t.Errorf("made %t, %v, want ErrUnknown", made, err)
		}
		l.Lose("", 0)
		gone(t, c, tok)
	})
	// The next attempt of the same call knows its own marker.
	t.Run("attempt after an attempt", func(t *testing.T) {
		t.Parallel()
		e, _ := storetest.NewLossyEngine(t)
		tok, c, call := e.Managed("m"), e.NS.Client(), bson.NewObjectID()
		for _, who := range []struct {
			call bson.ObjectID
			made bool
		}{{call, true}, {call, true}, {bson.NewObjectID(), false}} {
			err := e.NS.Transact(t.Context(), "attempt", func(ctx context.Context) error {
				made, err := c.CreateOnceAs(ctx, []string{conn.OnceID(tok, "start")}, who.call, nil)
				if err == nil && made != who.made {
					t.Errorf("made %t, want %t", made, who.made)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
