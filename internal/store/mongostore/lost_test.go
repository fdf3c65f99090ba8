package mongostore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestLostAnswers: a commit whose answers get lost is asked for until it is known, or its
// end is unknown; an insert without transaction is unknown at once. Applying again then
// finds what was done.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	g := func() record.GroupWrite {
		return storetest.Group(1, storetest.Put(t, "m", bson.D{{Key: "_id", Value: "a"}}))
	}
	t.Run("one commit", func(t *testing.T) {
		t.Parallel()
		e, l := storetest.NewLossyEngine(t)
		tok := e.Managed("m")
		l.Lose("commitTransaction", 1)
		e.Want(e.Apply(1, storetest.TokensOf(tok), g()), record.Applied)
		e.Want(e.Apply(1, storetest.TokensOf(tok), g()), record.Stale)
		if l.Lost.Load() == 0 {
			t.Error("nothing was lost")
		}
	})
	t.Run("all commits", func(t *testing.T) {
		t.Parallel()
		e, l := storetest.NewLossyEngine(t)
		tok := e.Managed("m")
		l.Lose("commitTransaction", 1<<40)
		_, err := e.NS.Apply(t.Context(), record.Batch{Tokens: storetest.TokensOf(tok), Epoch: 1, Groups: []record.GroupWrite{g()}})
		if !errors.Is(err, record.ErrUnknown) {
			t.Fatalf("%v, want ErrUnknown", err)
		}
		l.Lose("", 0)
		e.Want(e.Apply(1, storetest.TokensOf(tok), g()), record.Stale)
	})
	t.Run("insert", func(t *testing.T) {
		t.Parallel()
		e, l := storetest.NewLossyEngine(t)
		tok := e.Managed("m")
		l.Lose("documents", 1)
		_, err := e.NS.Load(t.Context(), record.Batch{Tokens: storetest.TokensOf(tok), Epoch: 1, Groups: []record.GroupWrite{g()}})
		if !errors.Is(err, record.ErrUnknown) {
			t.Fatalf("%v, want ErrUnknown", err)
		}
		e.Want(e.Load(1, storetest.TokensOf(tok), g()), record.Changed)
		e.Want(e.Apply(1, storetest.TokensOf(tok), g()), record.Stale)
	})
	t.Run("statement of a transaction", func(t *testing.T) {
		t.Parallel()
		e, l := storetest.NewLossyEngine(t)
		tok := e.Managed("m")
		l.Lose("documents", 1)
		e.Want(e.Apply(1, storetest.TokensOf(tok), g()), record.Applied)
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		e, l := storetest.NewLossyEngine(t)
		tok := e.Managed("m")
		l.Lose("commitTransaction", 1<<40)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// Not before a commit was sent: until then nothing can have been written.
		var begin atomic.Pointer[time.Time]
		l.Then(func() {
			now := time.Now()
			begin.CompareAndSwap(nil, &now)
			cancel()
		})
		_, err := e.NS.Apply(ctx, record.Batch{Tokens: storetest.TokensOf(tok), Epoch: 1, Groups: []record.GroupWrite{g()}})
		if !errors.Is(err, record.ErrUnknown) {
			t.Fatalf("%v, want ErrUnknown", err)
		}
		if took := time.Since(*begin.Load()); took > time.Minute {
			t.Errorf("it took %v to give up", took)
		}
	})
}

// TestSecrets: no error shows what a connection string holds.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{
		"mongodb://user:s3cret@127.0.0.1:1/?serverSelectionTimeoutMS=1",
		"mongodb://user:s3cret@127.0.0.1:bad/",
		"mongodb://user:s3cret%zz@127.0.0.1/",
		"mongodb://user:p@s3cret@127.0.0.1/",
		"mongo://user:s3cret@127.0.0.1/",
		"user:s3cret@127.0.0.1",
		"mongodb://127.0.0.1/?tlsCertificateKeyFilePassword=s3cret&tls=maybe",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := mongostore.Open(ctx, conn.Config{URI: uri, Database: "d"})
		cancel()
		if err == nil {
			t.Errorf("%s was opened", uri)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error for %s: %v", uri, err)
		}
	}
}
