package client_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestClientThroughMongosThatLosesTheShard: a shard executes a write and is lost before it answers.
// mongos then reports an error of the statement, or of the commit. The write must not count as
// refused: a retry confirms it, or its outcome is unknown.
func TestClientThroughMongosThatLosesTheShard(t *testing.T) {
	t.Parallel()
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	l := new(storetest.LossyNet)
	ns := storetest.OpenNamespace(t, conn.Config{URI: c.URI(), Database: db, AppName: t.Name()}, l)
	tok, err := ns.Provision(t.Context(), record.KindSpec{Name: "things"}, record.PhysicalName("things", 1))
	if err != nil {
		t.Fatal(err)
	}
	owner := record.Owner{Deployment: "d", Version: "v1"}
	if err := ns.PutMark(t.Context(), record.Mark{Owner: owner, Body: storetest.Doc("m", 1)}); err != nil {
		t.Fatal(err)
	}
	toks := record.Tokens{"things": tok}
	if err := ns.Client().Write(t.Context(), toks, []record.Mutation{storetest.Creation("a", 1), storetest.Creation("b", 1)}); err != nil {
		t.Fatal(err)
	}
	const said = "Could not find host matching read preference"
	statement := bson.D{{Key: "n", Value: 0}, {Key: "nModified", Value: 0}, {Key: "writeErrors", Value: bson.A{
		bson.D{{Key: "index", Value: 0}, {Key: "code", Value: 133}, {Key: "errmsg", Value: said}},
	}}, {Key: "ok", Value: 1}}
	commit := bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 133}, {Key: "codeName", Value: "FailedToSatisfyReadPreference"}, {Key: "errmsg", Value: said}}
	one := func(ctx context.Context, n int) error {
		m := storetest.Replacement("a", n)
		m.Exists = true
		return ns.Client().Write(ctx, toks, []record.Mutation{m})
	}
	both := func(ctx context.Context, n int) error {
		return ns.Client().Write(ctx, toks, []record.Mutation{storetest.Replacement("a", n), storetest.Replacement("b", n)})
	}
	mark := func(ctx context.Context, _ int) error {
		return ns.PutMark(ctx, record.Mark{Owner: owner, Rev: 1, Body: storetest.Doc("m", 2)})
	}
	for i, tc := range []struct {
		name, command string
		answer        bson.D
		times         int64
		write         func(ctx context.Context, n int) error
		want          error
	}{
		{"statement, once", "updates", statement, 1, one, nil},
		{"statement", "updates", statement, 1 << 40, one, record.ErrUnknown},
		{"commit, once", "commitTransaction", commit, 1, both, nil},
		{"commit", "commitTransaction", commit, 1 << 40, both, record.ErrUnknown},
		{"mark", "updates", statement, 1 << 40, mark, record.ErrUnknown},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		lost, n := l.Lost.Load(), i+2
		// The caller gives up after the answer to a retry, if there is one.
		l.Then(func() {
			if l.Lost.Load() == lost+2 {
				cancel()
			}
		})
		l.Answer(t, tc.command, tc.times, tc.answer)
		err := tc.write(ctx, n)
		l.Lose("", 0)
		cancel()
		if l.Lost.Load() == lost {
			t.Errorf("%s: no answer was replaced", tc.name)
		}
		if !errors.Is(err, tc.want) || errors.Is(err, record.ErrRefused) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
		if tc.name == "mark" {
			continue
		}
		got, err := ns.Client().Get(t.Context(), tok, record.StringKey("a"))
		if err != nil || got.Doc.Lookup("n").AsInt64() != int64(n) {
			t.Errorf("%s: the record is %s, %v: the write did not run", tc.name, got.Doc, err)
		}
	}
}
