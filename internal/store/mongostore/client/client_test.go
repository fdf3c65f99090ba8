package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/client"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

func int32Value(n int32) bson.RawValue {
	return wire.MustMarshal(bson.D{{Key: "v", Value: n}}).Lookup("v")
}

func TestClientCreatesOverATombstone(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, storetest.UniqueMail())
	for _, name := range []string{"dead", "dead in a transaction"} {
		b.Run(t, bson.D{{Key: "insert", Value: tok.Name}, {Key: "documents", Value: bson.A{
			bson.D{{Key: "_id", Value: name}, {Key: "_dbc", Value: bson.D{{Key: "g", Value: make([]byte, 24)}, {Key: "x", Value: true}}}},
		}}})
	}
	c, toks := b.Client(), record.Tokens{"things": tok}
	for _, missing := range []record.Mutation{
		{Kind: "things", Key: record.StringKey("dead"), Doc: storetest.Doc("dead", 1), Exists: true},
		{Kind: "things", Key: record.StringKey("dead"), Exists: true},
	} {
		storetest.WantErr(t, c.Write(t.Context(), toks, []record.Mutation{missing}), record.ErrNotFound)
	}
	_, err := c.Get(t.Context(), tok, record.StringKey("dead"))
	storetest.WantErr(t, err, record.ErrNotFound)
	if err := c.Write(t.Context(), toks, []record.Mutation{storetest.Removal("dead")}); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), toks, []record.Mutation{storetest.Creation("dead", 5)}); err != nil {
		t.Fatal(err)
	}
	storetest.WantErr(t, c.Write(t.Context(), toks, []record.Mutation{storetest.Creation("dead", 6)}), record.ErrExists)
	if err := c.Write(t.Context(), toks, []record.Mutation{storetest.Creation("dead in a transaction", 5), storetest.Creation("new", 1)}); err != nil {
		t.Fatal(err)
	}
	storetest.WantErr(t, c.Write(t.Context(), toks, []record.Mutation{storetest.Creation("newer", 5), storetest.Creation("new", 1)}), record.ErrExists)
	for name, n := range map[string]int{"dead": 5, "dead in a transaction": 5, "new": 1} {
		r, err := c.Get(t.Context(), tok, record.StringKey(name))
		if err != nil || string(r.Doc) != string(storetest.Doc(name, n)) {
			t.Errorf("%s is %s, %v", name, r.Doc, err)
		}
	}
	_, err = c.Get(t.Context(), tok, record.StringKey("newer"))
	storetest.WantErr(t, err, record.ErrNotFound)
}

func TestClientNamesTheIndex(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, storetest.UniqueMail())
	c, toks := b.Client(), record.Tokens{"things": tok}
	mail := func(name string) record.Mutation {
		m := storetest.Creation(name, 1)
		m.Doc = wire.MustMarshal(bson.D{{Key: "_id", Value: name}, {Key: "mail", Value: "m"}})
		return m
	}
	if err := c.Write(t.Context(), toks, []record.Mutation{mail("x")}); err != nil {
		t.Fatal(err)
	}
	for _, ms := range [][]record.Mutation{{mail("y")}, {storetest.Creation("other", 1), mail("y")}} {
		err := c.Write(t.Context(), toks, ms)
		storetest.WantErr(t, err, record.ErrConflict)
		if !strings.Contains(err.Error(), "mail_1") || !strings.Contains(err.Error(), "y") {
			t.Errorf("error names neither index nor record: %v", err)
		}
	}
}

func TestClientConditionsInATransaction(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	c, toks := b.Client(), record.Tokens{"things": tok}
	match := func(name string, have, want int32) record.Mutation {
		return record.Mutation{Kind: "things", Key: record.StringKey(name), Doc: storetest.Doc(name, int(want)), Match: &record.Match{Path: "n", Value: int32Value(have)}}
	}
	for what, c2 := range map[string]struct {
		ms   []record.Mutation
		want error
	}{
		"mismatch":  {[]record.Mutation{match("a", 1, 2), match("b", 7, 8)}, record.ErrMismatch},
		"not found": {[]record.Mutation{match("a", 1, 2), match("nobody", 7, 8)}, record.ErrNotFound},
		"exists":    {[]record.Mutation{match("a", 1, 2), storetest.Creation("b", 8)}, record.ErrExists},
		"deletes":   {[]record.Mutation{match("a", 1, 2), storetest.Removal("b"), {Kind: "things", Key: record.StringKey("nobody"), Exists: true}}, record.ErrNotFound},
	} {
		t.Run(what, func(t *testing.T) { storetest.WantErr(t, c.Write(t.Context(), toks, c2.ms), c2.want) })
	}
	for _, d := range b.Docs(t, tok.Name) {
		if d.Lookup("n").AsInt64() != 1 {
			t.Errorf("something was written: %s", d)
		}
	}
	if err := c.Write(t.Context(), toks, []record.Mutation{match("a", 1, 2), match("a", 2, 3), storetest.Removal("b"), storetest.Removal("nobody"), storetest.Creation("d", 1)}); err != nil {
		t.Fatal(err)
	}
	rs, err := c.List(t.Context(), record.ListRequest{Token: tok})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rs {
		names = append(names, fmt.Sprintf("%s=%d", r.Key, r.Doc.Lookup("n").AsInt64()))
	}
	if !slices.Equal(names, []string{"a=3", "c=1", "d=1"}) {
		t.Errorf("%v", names)
	}
}

func TestClientRefusesWhatItMustNotWrite(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	fixed := b.Fixed(t, "orders")
	c, toks := b.Client(), record.Tokens{"things": tok, "orders": fixed}
	for what, m := range map[string]record.Mutation{
		"guard":          {Kind: "things", Key: record.StringKey("x"), Doc: wire.MustMarshal(bson.D{{Key: "_id", Value: "x"}, {Key: "_dbc", Value: 1}})},
		"other key":      {Kind: "things", Key: record.StringKey("x"), Doc: storetest.Doc("y", 1)},
		"no key":         {Kind: "things", Doc: storetest.Doc("y", 1)},
		"no token":       {Kind: "none", Key: record.StringKey("x"), Doc: storetest.Doc("x", 1)},
		"fixed":          {Kind: "orders", Key: record.StringKey("x"), Doc: storetest.Doc("x", 1)},
		"two conditions": {Kind: "things", Key: record.StringKey("x"), Doc: storetest.Doc("x", 1), Absent: true, Exists: true},
		"absent delete":  {Kind: "things", Key: record.StringKey("x"), Absent: true},
	} {
		if err := c.Write(t.Context(), toks, []record.Mutation{m}); err == nil {
			t.Errorf("%s went through", what)
		}
	}
	// An operator's name as first field is data, not an operator.
	odd := wire.MustMarshal(bson.D{{Key: "n", Value: 1}, {Key: "_id", Value: "odd"}})
	for range 2 {
		if err := c.Write(t.Context(), toks, []record.Mutation{{Kind: "things", Key: record.StringKey("odd"), Doc: odd}}); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	// notRun: the connection breaks before the command runs.
	notRun = bson.E{Key: "closeConnection", Value: true}
	// noAck: the command runs, and the answer is that a majority has not confirmed it.
	noAck = bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: conn.CodeWriteConcernTimeout}, {Key: "errmsg", Value: "timed out"}}}
)

// TestClientRetriesAcrossAFence: after a lost answer the fence comes before the retry.
// What had run is confirmed, what had not run is ErrFenced, and the store agrees.
func TestClientRetriesAcrossAFence(t *testing.T) {
	w := storetest.Unreliable(t)
	tok := w.Bench.Managed(t, record.Shape{})
	exists := func(m record.Mutation) record.Mutation { m.Exists = true; return m }
	cases := []struct {
		name, command string
		how           bson.E
		ms            []record.Mutation
		want          error
		n             map[string]int64 // 0: absent
	}{
		{"create ran", "insert", noAck, []record.Mutation{storetest.Creation("x1", 4)}, nil, map[string]int64{"x1": 4}},
		{"create did not run", "insert", notRun, []record.Mutation{storetest.Creation("x2", 4)}, record.ErrFenced, map[string]int64{"x2": 0}},
		{"update ran", "update", noAck, []record.Mutation{exists(storetest.Replacement("a", 4))}, nil, map[string]int64{"a": 4}},
		{"update did not run", "update", notRun, []record.Mutation{exists(storetest.Replacement("b", 4))}, record.ErrFenced, map[string]int64{"b": 1}},
		{"delete ran", "delete", noAck, []record.Mutation{exists(storetest.Removal("a"))}, nil, map[string]int64{"a": 0}},
		{"delete did not run", "delete", notRun, []record.Mutation{exists(storetest.Removal("b"))}, record.ErrFenced, map[string]int64{"b": 1}},
		{"commit ran", "commitTransaction", noAck, []record.Mutation{storetest.Creation("x3", 4), storetest.Removal("c")}, nil, map[string]int64{"x3": 4, "c": 0}},
		{"commit did not run", "commitTransaction", notRun, []record.Mutation{storetest.Creation("x4", 4), storetest.Removal("b")}, record.ErrFenced, map[string]int64{"x4": 0, "b": 1}},
	}
	other := storetest.BenchAt(t, w.URI, "app") // the fence is another process
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			to := record.PhysicalName("things", uint64(i+2))
			fenced := make(chan error, 1)
			w.Once(c.command, func(bool) { fenced <- other.Fence(context.WithoutCancel(t.Context()), storetest.Next(tok, to)) })
			w.Fail(t, c.command, c.how)
			err := w.Client().Write(t.Context(), record.Tokens{"things": tok}, c.ms)
			if fence := <-fenced; fence != nil {
				t.Fatal(fence)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error is %v, want %v", err, c.want)
			}
			tok.Name = to
			for name, want := range c.n {
				var d struct{ N int64 }
				err := w.Raw.Collection(to).FindOne(t.Context(), bson.D{{Key: "_id", Value: name}}).Decode(&d)
				if errors.Is(err, mongo.ErrNoDocuments) {
					d.N = 0
				} else if err != nil {
					t.Fatal(err)
				}
				if d.N != want {
					t.Errorf("%s has n = %d, want %d", name, d.N, want)
				}
			}
		})
	}
}

// TestClientWaitsForRoom: a server whose cache is full refuses a statement, or a commit, for
// the moment. Nobody hears of it, and what was written is written once.
func TestClientWaitsForRoom(t *testing.T) {
	w := storetest.Unreliable(t)
	tok := w.Bench.Managed(t, record.Shape{})
	full := bson.E{Key: "errorCode", Value: conn.CodeTemporarilyUnavailable}
	for command, ms := range map[string][]record.Mutation{
		"insert":            {storetest.Creation("r1", 4)},
		"update":            {storetest.Replacement("a", 4)},
		"delete":            {storetest.Removal("b")},
		"commitTransaction": {storetest.Creation("r2", 4), storetest.Removal("c")},
	} {
		w.Fail(t, command, full)
		met := false
		w.Once(command, func(failed bool) { met = failed })
		if err := w.Client().Write(t.Context(), record.Tokens{"things": tok}, ms); err != nil || !met {
			t.Errorf("%s: %v, refused %t", command, err, met)
		}
	}
	left := map[string]int64{}
	for _, d := range w.Docs(t, tok.Name) {
		left[d.Lookup("_id").StringValue()] = d.Lookup("n").AsInt64()
	}
	if diff := cmp.Diff(map[string]int64{"r1": 4, "r2": 4, "a": 4}, left); diff != "" {
		t.Error(diff)
	}
}

// TestClientTransactionIsKilled: a fence, of whatever deployment, kills the session of a
// transaction that holds it up while a statement, or the commit, is under way. Nobody hears of
// it, and what was written is written once.
func TestClientTransactionIsKilled(t *testing.T) {
	w := storetest.Unreliable(t)
	tok := w.Bench.Managed(t, record.Shape{})
	for command, ms := range map[string][]record.Mutation{
		"delete":            {storetest.Creation("r1", 4), storetest.Removal("b")},
		"commitTransaction": {storetest.Creation("r2", 4), storetest.Removal("c")},
	} {
		w.Fail(t, command, bson.E{Key: "blockConnection", Value: true}, bson.E{Key: "blockTimeMS", Value: 60_000})
		written := make(chan error, 1)
		go func() { written <- w.Client().Write(t.Context(), record.Tokens{"things": tok}, ms) }()
		storetest.WaitFor(t, func() bool {
			open, err := w.Bench.OpenTransactions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			killed, err := w.Bench.KillTransactions(t.Context(), open, "is tested", func(txn conn.OpenTransaction) bool {
				return txn.App == "lossy" && txn.HoldsCollection && txn.OpenMicros >= conn.LockWait.Microseconds()
			})
			if err != nil {
				t.Fatal(err)
			}
			return killed > 0
		})
		if err := <-written; err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	left := map[string]int64{}
	for _, d := range w.Docs(t, tok.Name) {
		left[d.Lookup("_id").StringValue()] = d.Lookup("n").AsInt64()
	}
	if diff := cmp.Diff(map[string]int64{"r1": 4, "r2": 4, "a": 1}, left); diff != "" {
		t.Error(diff)
	}
}

// TestClientRefusalAfterALostAnswerIsFinal: the first attempt is lost on its way, the
// repetition is refused; the first attempt, should it come after all, finds its
// transaction number used up.
func TestClientRefusalAfterALostAnswerIsFinal(t *testing.T) {
	w := storetest.Unreliable(t)
	tok := w.Bench.Managed(t, record.Shape{})
	c := w.Client()
	var late bson.D
	w.Once("update", func(bool) {
		// Meanwhile somebody else changes the record, so that the condition fails.
		_, err := w.Raw.Collection(tok.Name).UpdateByID(context.WithoutCancel(t.Context()), "a", bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int32(9)}}}})
		if err != nil {
			t.Error(err)
		}
	})
	m := storetest.Replacement("a", 2)
	m.Match = &record.Match{Path: "n", Value: int32Value(1)}
	s, err := c.Statement(record.Tokens{"things": tok}, m)
	if err != nil {
		t.Fatal(err)
	}
	w.Fail(t, "update", notRun)
	storetest.WantErr(t, c.Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{m}), record.ErrMismatch)

	// The record is as it was again, and now the first attempt arrives.
	if _, err := w.Raw.Collection(tok.Name).UpdateByID(t.Context(), "a", bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int32(1)}}}}); err != nil {
		t.Fatal(err)
	}
	sessions, numbers := c.FreeSessions()
	if len(sessions) != 1 {
		t.Fatalf("%d sessions, want 1", len(sessions))
	}
	if late, err = client.Command([]client.Statement{s}); err != nil {
		t.Fatal(err)
	}
	late = append(late, bson.E{Key: "txnNumber", Value: numbers[0] - 1})
	err = w.Namespace.DB.RunCommand(mongo.NewSessionContext(t.Context(), sessions[0]), late).Err()
	if !conn.HasCode(err, 225) { // TransactionTooOld
		t.Errorf("the late attempt: %v", err)
	}
	if n := w.Docs(t, tok.Name)[0].Lookup("n").AsInt64(); n != 1 {
		t.Errorf("the late attempt wrote %d", n)
	}
}

// TestClientUnknownIsSaid: no server answers until the caller's time is over.
func TestClientUnknownIsSaid(t *testing.T) {
	w := storetest.Unreliable(t)
	tok := w.Bench.Managed(t, record.Shape{})
	for name, ms := range map[string][]record.Mutation{
		"one":     {storetest.Creation("u1", 1)},
		"several": {storetest.Creation("u2", 1), storetest.Creation("u3", 1)},
	} {
		command := "insert"
		if len(ms) > 1 {
			command = "commitTransaction"
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.Once(command, func(bool) { cancel() })
		w.Fail(t, command, noAck)
		err := w.Client().Write(ctx, record.Tokens{"things": tok}, ms)
		cancel()
		if !errors.Is(err, record.ErrUnknown) || errors.Is(err, record.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := w.Client().Write(ctx, record.Tokens{"things": tok}, []record.Mutation{storetest.Creation("never", 1)})
	if err == nil || errors.Is(err, record.ErrFenced) {
		t.Errorf("over before it began: %v", err)
	}
}

// TestValidatorModeOfManagedKinds: the stable API refuses collectionUUID, as servers that
// do not have it would.
func TestValidatorModeOfManagedKinds(t *testing.T) {
	uri, name := mongotest.Database(t)
	b := storetest.BenchAt(t, uri, name)
	client, err := mongo.Connect(options.Client().ApplyURI(uri).
		SetServerAPIOptions(options.ServerAPI(options.ServerAPIVersion1).SetStrict(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	strict := storetest.NewNamespace(client, name, "test", zaptest.NewLogger(t))
	tok, err := strict.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	if tok.ID != "" {
		t.Fatalf("token has an identity: %+v", tok)
	}
	var unsupported *record.UnsupportedError
	if _, _, err := strict.Prepare(t.Context(), tok, record.FenceUUID); !errors.As(err, &unsupported) {
		t.Errorf("uuid: %v", err)
	}
	class, restore, err := strict.Prepare(t.Context(), tok, "")
	if err != nil || class != record.FenceValidator {
		t.Fatalf("%s, %v", class, err)
	}
	c, toks := strict.Client(), record.Tokens{"things": tok}
	for _, m := range []record.Mutation{storetest.Creation("a", 1), storetest.Creation("b", 1), storetest.Creation("gone", 1), storetest.Removal("gone")} {
		if err := c.Write(t.Context(), toks, []record.Mutation{m}); err != nil {
			t.Fatal(err)
		}
	}
	if docs := b.Docs(t, tok.Name); len(docs) != 3 {
		t.Errorf("a delete is not a tombstone: %v", docs)
	}
	_, err = c.Get(t.Context(), tok, record.StringKey("gone"))
	storetest.WantErr(t, err, record.ErrNotFound)
	f := record.Fence{Class: class, Token: tok, To: "things.n2", Restore: restore}
	if err := strict.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	for what, ms := range map[string][]record.Mutation{
		"create":           {storetest.Creation("c", 1)},
		"put":              {storetest.Replacement("a", 2)},
		"delete":           {storetest.Removal("a")},
		"several":          {storetest.Removal("a"), storetest.Removal("b")},
		"over a tombstone": {storetest.Creation("gone", 2)},
	} {
		if err := c.Write(t.Context(), toks, ms); !errors.Is(err, record.ErrFenced) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if docs := b.Docs(t, tok.Name); len(docs) != 3 || docs[0].Lookup("n").AsInt64() != 1 {
		t.Errorf("stale writes had an effect: %v", docs)
	}
	if err := strict.Unfence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), toks, []record.Mutation{storetest.Creation("gone", 2)}); err != nil {
		t.Fatal(err)
	}
}

// A transaction of our own client that has begun before the fence either commits
// before it or is refused whole.
func TestFenceInsideAClientTransaction(t *testing.T) {
	b := storetest.NewBench(t)
	tok := b.Managed(t, record.Shape{})
	err := b.Transact(t.Context(), "test", func(ctx context.Context) error {
		if err := b.Client().WriteRun(ctx, []client.Statement{{Mutation: storetest.Replacement("a", 7), Tok: tok, Raw: storetest.Doc("a", 7)}}); err != nil {
			return err
		}
		return b.Fence(t.Context(), storetest.Next(tok, "things.n2"))
	})
	// The commit meets a killed transaction, the second try the fence.
	storetest.WantErr(t, err, record.ErrFenced)
	if n := b.Docs(t, "things.n2")[0].Lookup("n").AsInt64(); n != 1 {
		t.Fatalf("the transaction left n = %d", n)
	}
}
