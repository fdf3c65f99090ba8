package conn_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestLoginChangesInATransaction: the password is changed while a transaction is open, and its
// connection breaks. Whether it was committed is unknown, as a commit was sent whose answer is
// lost; the login that is refused afterwards does not make that certain. What stays open is ended
// by the next login, and holds up nobody for the minute that the server would keep it.
func TestLoginChangesInATransaction(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t, localmongo.Options{Auth: true, Own: true})
	_, rest, _ := strings.Cut(srv.URI(), "@")
	root := storetest.OpenNamespace(t, conn.Config{URI: srv.URI(), Database: "shop"}, nil)
	tok, err := root.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	administer := func(cmd bson.D) {
		t.Helper()
		if err := root.Admin().RunCommand(t.Context(), cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	administer(bson.D{{Key: "createUser", Value: "service"}, {Key: "pwd", Value: "p0"},
		{Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: "shop"}}}}})
	for i, tc := range []struct {
		name    string
		arrives bool // the commit
	}{{"nothing arrives", false}, {"the answer is lost", true}} {
		l := new(storetest.LossyNet)
		was, now := "before-"+strconv.Itoa(i), "after-"+strconv.Itoa(i)
		administer(bson.D{{Key: "updateUser", Value: "service"}, {Key: "pwd", Value: was}})
		former := storetest.OpenNamespace(t, conn.Config{URI: "mongodb://service:" + was + "@" + rest, Database: "shop"}, l)
		client := former.Client()
		mutations := func(n int) (ms []record.Mutation) {
			for _, key := range []string{"a", "b"} {
				ms = append(ms, record.Mutation{Kind: "things", Key: record.StringKey(key), Doc: storetest.Doc(key, n)})
			}
			return ms
		}
		toks := record.Tokens{"things": tok}
		if err := client.Write(t.Context(), toks, mutations(1)); err != nil {
			t.Fatal(err)
		}
		administer(bson.D{{Key: "updateUser", Value: "service"}, {Key: "pwd", Value: now}})
		l.Cuts.Store(!tc.arrives)
		l.Lose("commitTransaction", 1)
		err := client.Write(t.Context(), toks, mutations(2))
		if !errors.Is(err, record.ErrUnknown) || !conn.IsLoginRefused(err) {
			t.Errorf("%s: %v, want an unknown end and a refused login", tc.name, err)
		}
		open := func() int {
			t.Helper()
			all, err := root.OpenTransactions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		if n, want := open(), map[bool]int{false: 1, true: 0}[tc.arrives]; n != want {
			t.Errorf("%s: %d transactions are open, want %d: the test shows nothing", tc.name, n, want)
		}
		next := storetest.OpenNamespace(t, conn.Config{URI: "mongodb://service:" + now + "@" + rest, Database: "shop"}, nil)
		if err := next.EndTransactions(t.Context(), former); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if n := open(); n != 0 {
			t.Errorf("%s: %d transactions are open after their end", tc.name, n)
		}
		if err := next.Client().Write(t.Context(), toks, mutations(3)); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestTransactionIsEndedLater: what could not be ended while the server was out of reach is
// ended before the next transaction begins, or a collection is dropped, which would wait for
// it.
func TestTransactionIsEndedLater(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		waits func(t *testing.T, e *storetest.Engine, tok record.Token)
	}{
		{"transaction", func(t *testing.T, e *storetest.Engine, tok record.Token) {
			e.Want(e.Apply(1, storetest.TokensOf(tok), storetest.Group(2, storetest.Put(t, "m", bson.D{{Key: "_id", Value: "a"}}))), record.Applied)
		}},
		{"sweep", func(t *testing.T, e *storetest.Engine, _ record.Token) {
			// Well before the server itself ends it.
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			if err := e.NS.Sweep(ctx, "dbc_scratch."); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// Fences of other tests on a server that is shared would end the transaction.
			l := new(storetest.LossyNet)
			cfg := conn.Config{URI: storetest.Start(t, localmongo.Options{Own: true}).URI(), Database: "shop", AppName: t.Name()}
			e := &storetest.Engine{T: t, NS: storetest.OpenNamespace(t, cfg, l)}
			tok, err := e.NS.Provision(t.Context(), record.KindSpec{Name: "m"}, "dbc_scratch.m")
			if err != nil {
				t.Fatal(err)
			}
			e.Want(e.Apply(1, storetest.TokensOf(tok), storetest.Group(1, storetest.Put(t, "m", bson.D{{Key: "_id", Value: "a"}}))), record.Applied)
			open := leaveOpen(t, e, l, tok)
			if !open() {
				t.Error("the transaction is not open: the test shows nothing")
			}
			tc.waits(t, e, tok)
			if open() {
				t.Error("the transaction is still open")
			}
		})
	}
}

// leaveOpen has the server get lost in the middle of a transaction that has written record
// "a", and come back. It returns whether that transaction is still open.
func leaveOpen(t *testing.T, e *storetest.Engine, l *storetest.LossyNet, tok record.Token) (open func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var session bson.Raw
	err := e.NS.Transact(ctx, "test", func(ctx context.Context) error {
		session = mongo.SessionFromContext(ctx).ID()
		filter := bson.D{{Key: "_id", Value: "a"}}
		if err := e.NS.DB.Collection(tok.Name).FindOneAndUpdate(ctx, filter, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}}).Err(); err != nil {
			return err
		}
		l.Cuts.Store(true)
		l.Lose("", 1<<40) // nothing arrives from here on
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.Lose("nothing of this", 0)
	return func() bool {
		t.Helper()
		all, err := e.NS.OpenTransactions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(txn conn.OpenTransaction) bool {
			return txn.Lsid.Lookup("id").Equal(session.Lookup("id"))
		})
	}
}
