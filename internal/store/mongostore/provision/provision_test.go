package provision_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

func TestUniqueIndexOnExistingDuplicates(t *testing.T) {
	b := storetest.NewBench(t)
	b.Run(t, bson.D{{Key: "insert", Value: "people"}, {Key: "documents", Value: bson.A{
		bson.D{{Key: "_id", Value: "x"}, {Key: "mail", Value: "same"}}, bson.D{{Key: "_id", Value: "y"}, {Key: "mail", Value: "same"}},
	}}})
	spec := record.KindSpec{Name: "people", Fixed: true, Shape: storetest.UniqueMail()}
	_, err := b.Provision(t.Context(), spec, "people")
	storetest.WantErr(t, err, record.ErrConflict)
	for _, part := range []string{"mail_1", "[mail]"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not name %q: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "same") {
		t.Errorf("error shows what is stored: %v", err)
	}
	if info, err := b.Describe(t.Context(), spec, "people"); err != nil || len(info.Shape.Indexes) != 0 {
		t.Errorf("indexes %v, %v", info.Shape.Indexes, err)
	}
}

// TestProvisionCompletesIndexes: a collection of ours that is there already, with records
// in it, gets the indexes that it lacks.
func TestProvisionCompletesIndexes(t *testing.T) {
	b := storetest.NewBench(t)
	for name, spec := range map[string]record.KindSpec{
		"people.n1": {Name: "people"},
		"orders.n1": {Name: "orders", Fixed: true}, // hidden
		"bills":     {Name: "bills", Fixed: true},
	} {
		tok, err := b.Provision(t.Context(), spec, name)
		if err != nil {
			t.Fatal(err)
		}
		b.Run(t, bson.D{{Key: "insert", Value: name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "x"}, {Key: "mail", Value: "x"}}}}})
		spec.Shape = storetest.UniqueMail()
		for turn, disturb := range []func(){
			func() {},
			func() { b.Run(t, bson.D{{Key: "dropIndexes", Value: name}, {Key: "index", Value: "mail_1"}}) },
			func() {}, // complete already
		} {
			disturb()
			again, err := b.Provision(t.Context(), spec, name)
			if err != nil || again != tok {
				t.Fatalf("%s, turn %d: %+v, %v", name, turn, again, err)
			}
			info, err := b.Describe(t.Context(), spec, name)
			if err != nil || len(info.Shape.Indexes) != 1 {
				t.Errorf("%s, turn %d: indexes %v, %v", name, turn, info.Shape.Indexes, err)
			}
		}
	}
}

func TestUniqueIndexOfManagedKindSkipsTombstones(t *testing.T) {
	filters := map[string][]bson.E{
		"plain":   nil,
		"sparse":  {{Key: "sparse", Value: true}},
		"partial": {{Key: "partialFilterExpression", Value: bson.D{{Key: "live", Value: true}}}},
		"null":    {{Key: "partialFilterExpression", Value: bson.D{{Key: "mail", Value: nil}}}},
	}
	for name, extra := range filters {
		t.Run(name, func(t *testing.T) {
			b := storetest.NewBench(t)
			spec := record.KindSpec{Name: "people", Shape: storetest.UniqueMail(extra...)}
			tok, err := b.Provision(t.Context(), spec, "people.n1")
			if err != nil {
				t.Fatal(err)
			}
			b.Run(t, bson.D{{Key: "insert", Value: tok.Name}, {Key: "documents", Value: bson.A{
				bson.D{{Key: "_id", Value: "gone"}, {Key: "_dbc", Value: bson.D{{Key: "x", Value: true}}}},
				bson.D{{Key: "_id", Value: "gone too"}, {Key: "_dbc", Value: bson.D{{Key: "x", Value: true}}}},
			}}})
			// What is there can be declared as it is described, and nothing is built twice.
			info, err := b.Describe(t.Context(), spec, tok.Name)
			if err != nil {
				t.Fatal(err)
			}
			spec.Shape = info.Shape
			if again, err := b.Provision(t.Context(), spec, tok.Name); err != nil || again != tok {
				t.Fatalf("%v, %v", again, err)
			}
			if info, err := b.Describe(t.Context(), spec, tok.Name); err != nil || len(info.Shape.Indexes) != 1 {
				t.Errorf("%v, %v", info.Shape.Indexes, err)
			}
		})
	}
}

func TestProvisionRefusesForeignDocuments(t *testing.T) {
	b := storetest.NewBench(t)
	b.Run(t, bson.D{{Key: "insert", Value: "things.n1"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 1}}}}})
	b.Run(t, bson.D{{Key: "create", Value: "things.n2"}})
	var unsupported *record.UnsupportedError
	for _, fixed := range []bool{false, true} {
		spec := record.KindSpec{Name: "things", Fixed: fixed}
		if _, err := b.Provision(t.Context(), spec, "things.n1"); !errors.As(err, &unsupported) {
			t.Errorf("fixed %t: %v", fixed, err)
		}
	}
	tok, err := b.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n2")
	if err != nil {
		t.Fatal(err)
	}
	b.Run(t, bson.D{{Key: "insert", Value: "things.n2"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 1}}}}})
	if again, err := b.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n2"); err != nil || again != tok {
		t.Errorf("our own again: %v, %v", again, err)
	}
}

func TestManagedValidatorLetsTombstonesPass(t *testing.T) {
	b := storetest.NewBench(t)
	spec := record.KindSpec{Name: "things", Shape: record.Shape{Options: wire.MustMarshal(bson.D{
		{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$type", Value: "int"}}}}},
	})}}
	tok, err := b.Provision(t.Context(), spec, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	write := func(d bson.D) error { _, err := b.Raw.Collection(tok.Name).InsertOne(t.Context(), d); return err }
	if err := write(bson.D{{Key: "_id", Value: "a"}, {Key: "n", Value: "text"}}); !conn.HasCode(err, conn.CodeValidation) {
		t.Errorf("a bad record: %v", err)
	}
	if err := write(bson.D{{Key: "_id", Value: "b"}, {Key: "_dbc", Value: bson.D{{Key: "x", Value: true}}}}); err != nil {
		t.Errorf("a tombstone: %v", err)
	}
	info, err := b.Describe(t.Context(), spec, tok.Name)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(info.Shape) != fmt.Sprint(spec.Shape) {
		t.Errorf("described as %v, declared as %v", info.Shape, spec.Shape)
	}
	// A fixed-name kind that is made like it holds the application's documents to the same.
	plain := record.KindSpec{Name: "plain", Fixed: true, Shape: info.Shape}
	if _, err := b.Provision(t.Context(), plain, "plain"); err != nil {
		t.Fatal(err)
	}
	like := bson.D{{Key: "_id", Value: "c"}, {Key: "_dbc", Value: bson.D{{Key: "x", Value: true}}}}
	if _, err := b.Raw.Collection("plain").InsertOne(t.Context(), like); !conn.HasCode(err, conn.CodeValidation) {
		t.Errorf("a document that looks like a tombstone: %v", err)
	}
	spec.Shape = info.Shape
	if _, err := b.Provision(t.Context(), spec, "things.n2"); err != nil {
		t.Fatal(err)
	}
	if again, err := b.Describe(t.Context(), spec, "things.n2"); err != nil || fmt.Sprint(again.Shape) != fmt.Sprint(info.Shape) {
		t.Errorf("%v, %v, want %v", again.Shape, err, info.Shape)
	}
}

func TestDescribeRefusesWhatCannotBeMoved(t *testing.T) {
	b := storetest.NewBench(t)
	b.Run(t, bson.D{{Key: "create", Value: "plain"}})
	cases := map[string]bson.D{
		"view":      {{Key: "viewOn", Value: "plain"}, {Key: "pipeline", Value: bson.A{}}},
		"time":      {{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}}},
		"capped":    {{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}},
		"collation": {{Key: "collation", Value: bson.D{{Key: "locale", Value: "en"}, {Key: "strength", Value: 1}}}},
		"clustered": {{Key: "clusteredIndex", Value: bson.D{{Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "unique", Value: true}}}},
		"encrypted": {{Key: "encryptedFields", Value: bson.D{{Key: "fields", Value: bson.A{}}}}},
	}
	for name, options := range cases {
		b.Run(t, append(bson.D{{Key: "create", Value: name}}, options...))
		var unsupported *record.UnsupportedError
		if _, err := b.Describe(t.Context(), record.KindSpec{Name: name, Fixed: true}, name); !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", name, err)
		} else if unsupported.Fence {
			t.Errorf("%s is taken for the view of a fence", name)
		}
		if name == "view" {
			continue
		}
		shape := record.Shape{Options: wire.MustMarshal(options)}
		if _, err := b.Provision(t.Context(), record.KindSpec{Name: "new", Shape: shape}, "new.n1"); !errors.As(err, &unsupported) {
			t.Errorf("declared %s: %v", name, err)
		}
	}
}

func TestSplitCutsEvenlyOverMixedTypes(t *testing.T) {
	b := storetest.NewBench(t)
	b.Fixed(t, "many")
	const count = 12000
	var docs []any
	for i := range count {
		var id any = int64(i)
		switch i % 3 {
		case 1:
			id = fmt.Sprintf("name %d", i)
		case 2:
			id = bson.NewObjectID()
		}
		docs = append(docs, bson.D{{Key: "_id", Value: bson.D{{Key: "v", Value: id}}}}, bson.D{{Key: "_id", Value: id}})
	}
	docs = docs[:len(docs)-2] // 1 was there
	if _, err := b.Raw.Collection("many").DeleteMany(t.Context(), bson.D{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("many").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	info, err := b.Describe(t.Context(), record.KindSpec{Name: "many", Fixed: true}, "many")
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := b.Split(t.Context(), info.Token, 8)
	if err != nil {
		t.Fatal(err)
	}
	if len(ranges) != 8 {
		t.Fatalf("%d ranges, want 8", len(ranges))
	}
	sum := 0
	for i, r := range ranges {
		n, from := 0, r
		for {
			page, err := b.Scan(t.Context(), record.ScanRequest{Token: info.Token, Range: from, Limit: 5000, KeysOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			n += len(page.Records)
			if page.Done {
				break
			}
			from.From = page.Next
		}
		sum += n
		if n < len(docs)/8/3 || n > len(docs)/8*3 {
			t.Errorf("range %d has %d of %d", i, n, len(docs))
		}
	}
	if sum != len(docs) {
		t.Errorf("the ranges hold %d, want %d", sum, len(docs))
	}
}

func TestCheck(t *testing.T) {
	b := storetest.NewBench(t)
	if err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.NoScratch(t)
}

func TestCheckRefusesAStandalone(t *testing.T) {
	s := storetest.Start(t, localmongo.Options{Standalone: true, Own: true})
	b := storetest.BenchAt(t, s.URI(), "app")
	var unsupported *record.UnsupportedError
	if err := b.Check(t.Context()); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "--replSet") {
		t.Fatalf("error is %v", err)
	}
}

func TestCheckOfAnUnreachableServerIsOneLine(t *testing.T) {
	client, err := mongo.Connect(options.Client().
		ApplyURI("mongodb://user:secret@127.0.0.1:1/?serverSelectionTimeoutMS=300"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	ns := storetest.NewNamespace(client, "app", "mongodb://127.0.0.1:1/app", zaptest.NewLogger(t))
	err = ns.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("error is %v", err)
	}
	t.Log(err)
}

func TestCheckNamesTheMissingPrivilege(t *testing.T) {
	s := storetest.Start(t, localmongo.Options{Auth: true, Own: true})
	root := storetest.BenchAt(t, s.URI(), "app")
	admin := root.Raw.Client().Database("admin")
	user := func(name string, roles ...bson.D) *mongostore.Namespace {
		list := bson.A{}
		for _, r := range roles {
			list = append(list, r)
		}
		err := admin.RunCommand(t.Context(), bson.D{{Key: "createUser", Value: name}, {Key: "pwd", Value: "pw"}, {Key: "roles", Value: list}}).Err()
		if err != nil {
			t.Fatal(err)
		}
		ns, err := mongostore.Open(t.Context(), conn.Config{
			URI:      fmt.Sprintf("mongodb://%s:pw@%s/?authSource=admin", name, s.Nodes()[0].Addr()),
			Database: "app", Log: zaptest.NewLogger(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Close(context.Background()) })
		return ns
	}
	role := func(name, db string) bson.D { return bson.D{{Key: "role", Value: name}, {Key: "db", Value: db}} }
	// All privileges of a controller but one.
	actions := bson.A{}
	for _, p := range mongostore.Privileges() {
		if p.Scope == mongostore.OfDatabase && p.Action != "listCollections" {
			actions = append(actions, p.Action)
		}
	}
	err := root.Raw.RunCommand(t.Context(), bson.D{
		{Key: "createRole", Value: "noList"}, {Key: "roles", Value: bson.A{}},
		{Key: "privileges", Value: bson.A{bson.D{
			{Key: "resource", Value: bson.D{{Key: "db", Value: "app"}, {Key: "collection", Value: ""}}}, {Key: "actions", Value: actions},
		}}},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		roles []bson.D
		want  string
	}{
		"noList":  {[]bson.D{role("noList", "app")}, "(listCollections on the database): grant the role that 'dbcontroller roles' prints, or read on app"},
		"nothing": {nil, "changeStream"},
		"reader":  {[]bson.D{role("read", "app")}, "createCollection"},
		"writer":  {[]bson.D{role("readWrite", "app")}, "collMod"},
	} {
		err := user(name, c.roles...).Check(t.Context())
		if !errors.Is(err, conn.ErrNoPrivilege) || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n{") || strings.Contains(err.Error(), ":pw@") {
			t.Errorf("%s: %v", name, err)
		}
	}
	least := user("least", role("readWrite", "app"), role("dbAdmin", "app"))
	if err := least.Check(t.Context()); err != nil {
		t.Errorf("readWrite and dbAdmin: %v", err)
	}
	full := user("full", role("readWrite", "app"), role("dbAdmin", "app"), role("clusterMonitor", "admin"), role("hostManager", "admin"))
	if err := full.Check(t.Context()); err != nil {
		t.Errorf("with clusterMonitor and hostManager: %v", err)
	}
	// The classes that these privileges allow.
	b := storetest.BenchAt(t, s.URI(), "app")
	tok := b.Fixed(t, "orders")
	if class, _, err := full.Prepare(t.Context(), tok, ""); err != nil || class != record.FenceValidator {
		t.Errorf("without applyOps: %s, %v", class, err)
	}
	var unsupported *record.UnsupportedError
	if _, _, err := full.Prepare(t.Context(), tok, record.FenceView); !errors.As(err, &unsupported) {
		t.Errorf("view without applyOps: %v", err)
	}
	// A least-privileged fence works, its reads and writes too.
	kind := record.KindSpec{Name: "things"}
	managed, err := full.Provision(t.Context(), kind, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := full.Client().Write(t.Context(), record.Tokens{"things": managed}, []record.Mutation{storetest.Creation("a", 1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := full.Client().Get(t.Context(), managed, record.StringKey("a")); err != nil {
		t.Fatal(err)
	}
	s2, err := b.Raw.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s2.EndSession(context.Background())
	if err := s2.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raw.Collection("things.n1").InsertOne(mongo.NewSessionContext(t.Context(), s2), bson.D{{Key: "_id", Value: "late"}}); err != nil {
		t.Fatal(err)
	}
	if err := full.Fence(t.Context(), storetest.Next(managed, "things.n2")); err != nil {
		t.Fatal(err)
	}
	if err := s2.CommitTransaction(t.Context()); err == nil {
		t.Error("another user's transaction survived the fence")
	}
	// The write block: refused to users who would lock themselves out, granted to others.
	if _, _, err := full.Prepare(t.Context(), tok, record.FenceWriteBlock); !errors.As(err, &unsupported) {
		t.Errorf("write block: %v", err)
	}
	class, _, err := root.Prepare(t.Context(), tok, record.FenceWriteBlock)
	if err != nil || class != record.FenceWriteBlock {
		t.Fatalf("write block as root: %s, %v", class, err)
	}
	f := record.Fence{Class: class, Token: tok, To: "orders.n1"}
	for range 2 {
		if err := root.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := full.DB.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "late"}}); !conn.HasCode(err, conn.CodeWriteBlocked) {
		t.Errorf("insert behind the write block: %v", err)
	}
	if _, err := full.DB.Collection("orders").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); !conn.HasCode(err, conn.CodeWriteBlocked) {
		t.Errorf("delete behind the write block: %v", err)
	}
	for range 2 {
		if err := root.Unfence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := full.DB.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "free"}}); err != nil {
		t.Errorf("insert after unfence: %v", err)
	}
}
