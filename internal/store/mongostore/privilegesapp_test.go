package mongostore_test

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// applicationsLogin is what the login of an application with the least role can do, and cannot: it
// reads and writes its own collections, and a fence takes that away. Marks, guards, hidden and
// set-aside collections, and the fence itself, are out of its reach.
func applicationsLogin(t *testing.T, root *mongo.Client, uri string) {
	const (
		db      = "sold"
		viewed  = "orders" // fenced by a view
		checked = "lines"  // fenced by a validator
		aside   = viewed + ".n1"
	)
	admin := root.Database("admin")
	user := func(name string, role bson.D) string {
		t.Helper()
		for _, cmd := range []bson.D{role, {{Key: "createUser", Value: name}, {Key: "pwd", Value: "p"}, {Key: "roles", Value: bson.A{role[0].Value}}}} {
			if err := admin.RunCommand(t.Context(), cmd).Err(); err != nil {
				t.Fatal(err)
			}
		}
		_, rest, _ := strings.Cut(uri, "@")
		return "mongodb://" + name + ":p@" + rest
	}
	// The fence by a view takes a controller that may do anything.
	ns, err := mongostore.Open(t.Context(), conn.Config{Database: db, Log: zaptest.NewLogger(t), URI: user("mover", bson.D{
		{Key: "createRole", Value: "anything"}, {Key: "roles", Value: bson.A{}}, {Key: "privileges", Value: bson.A{
			bson.D{{Key: "resource", Value: bson.D{{Key: "anyResource", Value: true}}}, {Key: "actions", Value: bson.A{"anyAction"}}},
		}},
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close(context.WithoutCancel(t.Context())) }) //nolint:errcheck // of no interest
	all := root.Database(db)
	b := &storetest.Bench{Namespace: ns, Raw: all}
	set := map[string]record.Fence{}
	for kind, class := range map[string]record.FenceClass{viewed: record.FenceView, checked: record.FenceValidator} {
		tok := b.Fixed(t, kind)
		_, restore, err := ns.Prepare(t.Context(), tok, class)
		if err != nil {
			t.Fatal(err)
		}
		set[kind] = record.Fence{Class: class, Token: tok, To: record.PhysicalName(kind, 1), Restore: restore}
	}
	owner := record.Owner{Deployment: "services/shop/deployments/eu", Version: "v1"}
	if err := ns.PutMark(t.Context(), record.Mark{Owner: owner, Body: b.Run(t, bson.D{{Key: "ping", Value: 1}})}); err != nil {
		t.Fatal(err)
	}
	// All that an upgrade keeps next to the application's collections, and a stranger's.
	others := []string{
		fences.OwnerCollection, conn.MarksCollection, conn.GuardsName(viewed), record.PhysicalName(checked, 7), fences.GateOf(aside),
		conn.AsidePrefix + viewed, "dbc_lineage.x", "stranger",
	}
	login, err := mongo.Connect(options.Client().ApplyURI(user("application",
		mongostore.RoleFor(mongostore.Application, "applications", mongostore.On{Databases: []string{db}, Kinds: map[string][]string{db: {viewed, checked}}}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { login.Disconnect(context.WithoutCancel(t.Context())) }) //nolint:errcheck // it is done with
	app := login.Database(db)
	refuses := func(what string, codes []int, cmds map[string]bson.D) {
		t.Helper()
		for name, cmd := range cmds {
			if err := app.RunCommand(t.Context(), cmd).Err(); !conn.HasCode(err, codes...) {
				t.Errorf("%s %s: %v, want code %v", name, what, err, codes)
			}
		}
	}
	unreachable := func(names ...string) {
		t.Helper()
		for _, name := range names {
			refuses(name, []int{conn.CodeUnauthorized}, dataCommands(name))
			refuses(name, []int{conn.CodeUnauthorized}, reshapeCommands(name))
			refuses("into "+name, []int{conn.CodeUnauthorized}, map[string]bson.D{"$out": {
				{Key: "aggregate", Value: checked}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$out", Value: name}}}}, {Key: "cursor", Value: bson.D{}},
			}, "$lookup": {{Key: "aggregate", Value: checked}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$lookup", Value: bson.D{
				{Key: "from", Value: name}, {Key: "pipeline", Value: bson.A{}}, {Key: "as", Value: "seen"}}}}}}, {Key: "cursor", Value: bson.D{}}}})
		}
	}

	// Its own are read and written, and keep their shape and their validators.
	for _, kind := range []string{viewed, checked} {
		for name, cmd := range dataCommands(kind) {
			if err := app.RunCommand(t.Context(), cmd).Err(); err != nil {
				t.Errorf("%s %s: %v", name, kind, err)
			}
		}
		refuses(kind, []int{conn.CodeUnauthorized}, reshapeCommands(kind))
	}
	if found, err := app.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: viewed}}); err != nil || len(found) != 1 || found[0].UUID == nil {
		t.Errorf("package appclient finds %v, %v", found, err)
	}
	unreachable(others...)

	for kind, f := range set {
		if err := ns.Fence(t.Context(), f); err != nil {
			t.Fatalf("fence %s: %v", kind, err)
		}
	}
	reads := func(kind string) bson.D { return bson.D{{Key: "find", Value: kind}} }
	for kind, code := range map[string]int{viewed: conn.CodeViewWrite, checked: conn.CodeValidation} {
		cmds := dataCommands(kind)
		if err := app.RunCommand(t.Context(), reads(kind)).Err(); err != nil {
			t.Errorf("find behind the fence of %s: %v", kind, err)
		}
		refuses("behind the fence of "+kind, []int{code}, map[string]bson.D{"insert": cmds["insert"], "update": cmds["update"]})
		refuses("the fence of "+kind, []int{conn.CodeUnauthorized}, reshapeCommands(kind))
	}
	refuses("behind the view", []int{conn.CodeViewWrite}, map[string]bson.D{"delete": dataCommands(viewed)["delete"]})
	if err := app.RunCommand(t.Context(), dataCommands(checked)["delete"]).Err(); err != nil {
		t.Errorf("late deletes pass a validator, and are reported: %v", err)
	}
	refuses("behind the validator", []int{conn.CodeUnauthorized}, map[string]bson.D{"insert without validation": append(dataCommands(checked)["insert"], bson.E{Key: "bypassDocumentValidation", Value: true})})
	unreachable(append(others, aside)...)

	refuses("system.views", []int{conn.CodeUnauthorized}, dataCommands("system.views"))
	// Logins of others, and the hashes of their passwords.
	hashes := bson.D{{Key: "usersInfo", Value: 1}, {Key: "showCredentials", Value: true}}
	refuses("of users", []int{conn.CodeUnauthorized}, map[string]bson.D{"usersInfo": hashes})
	for name, cmd := range map[string]bson.D{"usersInfo": hashes, "find": {{Key: "find", Value: "system.users"}}} {
		if err := login.Database("admin").RunCommand(t.Context(), cmd).Err(); !conn.HasCode(err, conn.CodeUnauthorized) {
			t.Errorf("%s of all users: %v", name, err)
		}
	}
	// applyOps takes what its caller may do otherwise, and a fence has to hold for it.
	for _, kind := range []string{viewed, checked, aside, fences.OwnerCollection} {
		smuggled := bson.D{{Key: "_id", Value: "smuggled"}}
		err := login.Database("admin").RunCommand(t.Context(), bson.D{{Key: "applyOps", Value: bson.A{
			bson.D{{Key: "op", Value: "i"}, {Key: "ns", Value: db + "." + kind}, {Key: "o", Value: smuggled}},
		}}}).Err()
		if n, countErr := all.Collection(kind).CountDocuments(t.Context(), smuggled); err == nil || n > 0 || countErr != nil {
			t.Errorf("applyOps on %s: %v, and %d documents are there, %v", kind, err, n, countErr)
		}
	}

	for kind, f := range set {
		if f.Renames() {
			f.Token.Name = f.To
		}
		if found, err := ns.Uphold(t.Context(), f, nil); err != nil || len(found) > 0 {
			t.Errorf("the fence of %s: %+v, %v", kind, found, err)
		}
	}
	if marks, err := ns.Marks(t.Context()); err != nil || len(marks) != 1 || marks[0].Rev != 1 {
		t.Errorf("the marks are %+v, %v", marks, err)
	}
}

// dataCommands read and write the document "two" of a collection.
func dataCommands(name string) map[string]bson.D {
	two := bson.D{{Key: "_id", Value: "two"}}
	return map[string]bson.D{
		"find":   {{Key: "find", Value: name}},
		"insert": {{Key: "insert", Value: name}, {Key: "documents", Value: bson.A{bson.D{{Key: "n", Value: 3}}}}},
		"update": {{Key: "update", Value: name}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: two}, {Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}}, {Key: "upsert", Value: true}}}}},
		"delete": {{Key: "delete", Value: name}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$gte", Value: 0}}}}}, {Key: "limit", Value: 1}}}}},
	}
}

// reshapeCommands would take away a fence, or a collection's name.
func reshapeCommands(name string) map[string]bson.D {
	return map[string]bson.D{
		"drop":   {{Key: "drop", Value: name}},
		"create": {{Key: "create", Value: name}, {Key: "viewOn", Value: "stranger"}},
		"modify": {{Key: "collMod", Value: name}, {Key: "validator", Value: bson.D{}}},
		"index":  {{Key: "createIndexes", Value: name}, {Key: "indexes", Value: bson.A{bson.D{{Key: "key", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "name", Value: "n_1"}}}}},
	}
}
