package mongostore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestFenceThatNoMajorityHas: a rename that only the primary has is not confirmed; after
// that primary is lost the fence is made anew, and holds when the old one comes back.
func TestFenceThatNoMajorityHas(t *testing.T) {
	r := storetest.NewReplicas(t)
	tok := r.Managed(t, record.Shape{})
	old := r.Primary(t, -1)
	r.Replication(t, old, false)
	renamed := r.Direct[old].Admin().RunCommand(t.Context(), bson.D{
		{Key: "renameCollection", Value: "app." + tok.Name}, {Key: "to", Value: "app.things.n2"},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	})
	if err := renamed.Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	err := r.Fence(ctx, storetest.Next(tok, "things.n2"))
	cancel()
	storetest.WantErr(t, err, context.DeadlineExceeded)
	t.Log("as long as no majority has it:", err)

	// The no-op update of the confirmation alone waits for the rename, too.
	uuid, _ := conn.CollectionUUID(tok.ID)
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	err = r.DB.RunCommand(ctx, bson.D{
		{Key: "update", Value: "things.n2"},
		{Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: "nobody"}}}, {Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}}}}}},
		{Key: "collectionUUID", Value: uuid},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: 500}}},
	}).Err()
	cancel()
	if !conn.HasCode(err, conn.CodeWriteConcernTimeout) {
		t.Errorf("a no-op update with majority was acknowledged: %v", err)
	}

	// A write with the old token, at a node that has the rename: refused, and certain.
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	err = r.Client().Write(ctx, record.Tokens{"things": tok}, []record.Mutation{storetest.Creation("never", 1)})
	cancel()
	if err == nil {
		t.Error("a stale write was acknowledged")
	}

	r.Server.Nodes()[old].Kill()
	for i := range r.Direct {
		if i != old {
			err := r.Direct[i].Admin().RunCommand(t.Context(), bson.D{{Key: "configureFailPoint", Value: "stopReplProducer"}, {Key: "mode", Value: "off"}}).Err()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	fresh := r.Primary(t, old)
	names, err := r.Direct[fresh].DB.ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^things"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the new primary has %v", names)
	if len(names) != 1 || names[0] != tok.Name {
		t.Fatal("the test is void: the rename survived")
	}
	if err := r.Fence(t.Context(), storetest.Next(tok, "things.n2")); err != nil {
		t.Fatal(err)
	}
	if err := r.Server.Nodes()[old].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		err := r.Client().Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{storetest.Removal("a")})
		storetest.WantErr(t, err, record.ErrFenced)
	}
	tok.Name = "things.n2"
	for _, name := range []string{"a", "b", "c"} {
		if _, err := r.Client().Get(t.Context(), tok, record.StringKey(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGetIsNotAnsweredByADeposedPrimary: a primary that slept through an election has
// the old value, and must not give it out.
func TestGetIsNotAnsweredByADeposedPrimary(t *testing.T) {
	r := storetest.NewReplicas(t)
	tok := r.Managed(t, record.Shape{})
	old := r.Primary(t, -1)
	deposed := r.Direct[old]
	if _, err := deposed.Client().Get(t.Context(), tok, record.StringKey("a")); err != nil {
		t.Fatal(err) // connections are open now
	}
	r.Freeze(t, old)
	r.Primary(t, old)
	// A majority needs the remaining secondary, which takes its time on a busy machine.
	storetest.WaitFor(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := r.Client().Write(ctx, record.Tokens{"things": tok}, []record.Mutation{storetest.Replacement("a", 2)})
		if err != nil && !errors.Is(err, record.ErrUnknown) && ctx.Err() == nil {
			t.Fatal(err)
		}
		return err == nil
	})
	type result struct {
		n   int64
		err error
	}
	answers := make(chan result, 8)
	for range cap(answers) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			got, err := deposed.Client().Get(ctx, tok, record.StringKey("a"))
			if err != nil {
				answers <- result{err: err}
				return
			}
			answers <- result{n: got.Doc.Lookup("n").AsInt64()}
		}()
	}
	plain := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		raw, err := deposed.DB.RunCommand(ctx, bson.D{
			{Key: "find", Value: tok.Name}, {Key: "filter", Value: bson.D{{Key: "_id", Value: "a"}}},
			{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}},
		}).Raw()
		n, _ := raw.Lookup("cursor", "firstBatch", "0", "n").AsInt64OK()
		plain <- result{n, err}
	}()
	if err := r.Server.Nodes()[old].Resume(); err != nil {
		t.Fatal(err)
	}
	for range cap(answers) {
		if a := <-answers; a.err == nil && a.n != 2 {
			t.Errorf("read %d after 2 was acknowledged", a.n)
		}
	}
	t.Logf("a plain majority read there: %+v", <-plain)
}

// TestPagesAreNotOlderThanAsked: a node that others have left behind, like a primary that does
// not know yet that it was deposed, answers a scan and a read from the past, unless they say
// what they must not be older than.
func TestPagesAreNotOlderThanAsked(t *testing.T) {
	r := storetest.NewReplicas(t)
	tok := r.Managed(t, record.Shape{})
	behind := (r.Primary(t, -1) + 1) % len(r.Direct)
	stop := func(mode string) {
		t.Helper()
		err := r.Direct[behind].Admin().RunCommand(t.Context(), bson.D{{Key: "configureFailPoint", Value: "stopReplProducer"}, {Key: "mode", Value: mode}}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	before, err := r.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Direct[behind].Scan(t.Context(), record.ScanRequest{Token: tok, NotBefore: before.At}); err != nil {
		t.Fatal(err)
	}
	stop("alwaysOn")
	if err := r.Client().Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{storetest.Creation("acknowledged", 1)}); err != nil {
		t.Fatal(err)
	}
	start, err := r.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := record.StringKey("acknowledged")
	reads := map[string]func(ctx context.Context, notBefore record.Version) ([]record.Record, error){
		"scan": func(ctx context.Context, notBefore record.Version) ([]record.Record, error) {
			page, err := r.Direct[behind].Scan(ctx, record.ScanRequest{Token: tok, NotBefore: notBefore})
			return page.Records, err
		},
		"read": func(ctx context.Context, notBefore record.Version) ([]record.Record, error) {
			snap, err := r.Direct[behind].Read(ctx, record.ReadRequest{
				Tokens: record.Tokens{"things": tok}, NotBefore: notBefore, Select: []record.Selector{{Kind: "things", Key: key}},
			})
			return snap.Records, err
		},
	}
	there := func(rs []record.Record) bool {
		return slices.ContainsFunc(rs, func(r record.Record) bool { return r.Key == key })
	}
	for name, read := range reads {
		if rs, err := read(t.Context(), before.At); err != nil || there(rs) {
			t.Fatalf("the test is void: a %s of the past shows %d records, %v", name, len(rs), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if rs, err := read(ctx, start.At); err == nil && !there(rs) {
			t.Errorf("a %s not before %s shows %d records, and not what was acknowledged earlier", name, start.At, len(rs))
		}
		cancel()
	}
	stop("off")
	for name, read := range reads {
		if rs, err := read(t.Context(), start.At); err != nil || !there(rs) {
			t.Errorf("a %s shows %d records, %v", name, len(rs), err)
		}
	}
}

// TestReadsAsListOfServersLeftBehind: a node that others have left behind, like a primary that does
// not know yet that it was deposed, answers reads as a list from the past, where a Get is not
// answered. Where this process has been acknowledged what is missing there, neither is.
func TestReadsAsListOfServersLeftBehind(t *testing.T) {
	r := storetest.NewReplicas(t)
	tok := r.Managed(t, record.Shape{})
	toks := record.Tokens{"things": tok}
	behind := r.Direct[(r.Primary(t, -1)+1)%len(r.Direct)]
	stop := func(mode string) {
		t.Helper()
		err := behind.Admin().RunCommand(t.Context(), bson.D{{Key: "configureFailPoint", Value: "stopReplProducer"}, {Key: "mode", Value: mode}}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	start, err := r.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := behind.Scan(t.Context(), record.ScanRequest{Token: tok, NotBefore: start.At}); err != nil {
		t.Fatal(err)
	}
	stop("alwaysOn")
	if err := r.Client().Write(t.Context(), toks, []record.Mutation{storetest.Replacement("a", 2)}); err != nil {
		t.Fatal(err)
	}
	key, c := record.StringKey("a"), behind.Client()
	of := func(recs []record.Record, err error) (int64, error) {
		for _, rec := range recs {
			if rec.Key == key {
				return rec.Doc.Lookup("n").AsInt64(), err
			}
		}
		return 0, err
	}
	reads := map[string]func(ctx context.Context) (int64, error){
		"select of one": func(ctx context.Context) (int64, error) {
			return of(c.Select(ctx, record.SelectRequest{Tokens: toks, AsList: true, Select: []record.Selector{{Kind: "things", Key: key}}}))
		},
		"select of two": func(ctx context.Context) (int64, error) {
			return of(c.Select(ctx, record.SelectRequest{Tokens: toks, AsList: true, Select: []record.Selector{{Kind: "things", Key: key}, {Kind: "things", Key: record.StringKey("b")}}}))
		},
		"list": func(ctx context.Context) (int64, error) { return of(c.List(ctx, record.ListRequest{Token: tok})) },
		"list with": func(ctx context.Context) (int64, error) {
			recs, _, err := c.ListWith(ctx, toks, record.ListRequest{Token: tok}, func([]record.Record) ([]record.Selector, error) { return nil, nil })
			return of(recs, err)
		},
	}
	get := func(ctx context.Context) (int64, error) {
		rec, err := c.Get(ctx, tok, key)
		return of([]record.Record{rec}, err)
	}
	briefly := func(read func(ctx context.Context) (int64, error)) (int64, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return read(ctx)
	}
	for what, read := range reads {
		if n, err := read(t.Context()); err != nil || n != 1 {
			t.Fatalf("the test is void: a %s of the past shows %d, %v", what, n, err)
		}
	}
	if n, err := briefly(get); err == nil {
		t.Errorf("a get is answered from the past: %d", n)
	}
	behind.Seen.Reach(r.Seen.Time()) // as if it were of one process
	for what, read := range reads {
		if n, err := briefly(read); err == nil {
			t.Errorf("a %s shows %d after 2 was acknowledged", what, n)
		}
	}
	stop("off")
	for what, read := range reads {
		if n, err := read(t.Context()); err != nil || n != 2 {
			t.Errorf("a %s shows %d, %v", what, n, err)
		}
	}
}

// TestFrozenPrimaryIsGivenUp: calls that were sent to a primary which then freezes,
// with all its connections open, are answered by the next one before long, and not when
// the old one goes on.
func TestFrozenPrimaryIsGivenUp(t *testing.T) {
	r := storetest.NewReplicas(t)
	tok := r.Managed(t, record.Shape{})
	old := r.Primary(t, -1)
	r.Freeze(t, old)
	start := time.Now()
	// The old one stays frozen throughout. A majority needs the remaining secondary,
	// which may have followed it: on a busy machine it took more than two minutes until it
	// followed the next primary.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := r.Client().Write(ctx, record.Tokens{"things": tok}, []record.Mutation{storetest.Replacement("a", 2)})
	t.Logf("the write took %s", time.Since(start))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Client().Get(ctx, tok, record.StringKey("a"))
	if err != nil || got.Doc.Lookup("n").AsInt64() != 2 {
		t.Errorf("read %v, %v", got.Doc, err)
	}
	if err := r.Server.Nodes()[old].Resume(); err != nil {
		t.Fatal(err)
	}
}
