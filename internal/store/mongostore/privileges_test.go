package mongostore_test

import (
	"context"
	"slices"
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
	"dbcontroller.dev/record"
)

// TestRolesAreEnough: with the role of a controller everything is found to be possible, and
// each privilege that is taken away is missed: in one line that names it, or by what goes
// without it. With that of a server its calls work and a controller's are refused. An application
// reaches the collections of its kinds, under the names that it knows, and nothing else.
func TestRolesAreEnough(t *testing.T) {
	t.Parallel()
	server, err := localmongo.Start(t.Context(), localmongo.Options{Auth: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // a leftover shows by itself
	root, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Disconnect(t.Context()) //nolint:errcheck // it is done with
	const db = "shop"
	admin := root.Database("admin")
	run := func(cmd any) {
		t.Helper()
		if err := admin.RunCommand(t.Context(), cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(user string, role bson.D) *mongostore.Namespace {
		t.Helper()
		run(role)
		run(bson.D{{Key: "createUser", Value: user}, {Key: "pwd", Value: "p"}, {Key: "roles", Value: bson.A{role[0].Value}}})
		_, rest, _ := strings.Cut(server.URI(), "@")
		ns, err := mongostore.Open(t.Context(), conn.Config{URI: "mongodb://" + user + ":p@" + rest, Database: db, Log: zaptest.NewLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close(context.WithoutCancel(t.Context())) }) //nolint:errcheck // of no interest
		return ns
	}

	controller := mongostore.RoleFor(mongostore.Controller, "controllers", mongostore.On{Databases: []string{db}, Scratch: []string{db + "_dbcrehearsal"}})
	ns := open("controller", controller)
	if err := ns.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := ns.Survey(t.Context())
	if err != nil || s.Feature == "" || s.OplogProblem != "" || s.DiskTotal == 0 || !s.May("inprog") || !s.May("killAnySession") || s.May("shutdown") {
		t.Errorf("the survey is %+v, %v", s, err)
	}
	if _, err := ns.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := ns.Identify(t.Context()); err != nil {
		t.Error(err)
	}
	fixed, err := ns.Provision(t.Context(), record.KindSpec{Name: "f", Fixed: true}, "f")
	if err != nil {
		t.Fatal(err)
	}
	for version := range byte(2) { // creates the side collection, and then writes to both at once
		results, err := ns.Apply(t.Context(), record.Batch{Tokens: storetest.TokensOf(fixed), Epoch: 1, Groups: []record.GroupWrite{
			storetest.Group(version+1, storetest.Put(t, "f", bson.D{{Key: "_id", Value: "a"}})),
		}})
		if err != nil || results[0].Outcome != record.Applied {
			t.Errorf("apply: %v, %v", results, err)
		}
	}
	if err := root.Database(db).RunCommand(t.Context(), bson.D{{Key: "insert", Value: "k"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "a"}}}}}).Err(); err != nil {
		t.Fatal(err)
	}
	for _, p := range mongostore.Privileges() {
		if p.Scope != mongostore.OfDatabase || !slices.Contains(p.For, mongostore.Controller) {
			continue
		}
		less := slices.Clone(controller[1].Value.(bson.A))
		for i, one := range less {
			d := one.(bson.D)
			if resource := d[0].Value.(bson.D); resource[0].Value == db {
				kept := slices.DeleteFunc(slices.Clone(d[1].Value.([]string)), func(a string) bool { return a == p.Action })
				less[i] = bson.D{d[0], {Key: "actions", Value: kept}}
			}
		}
		run(bson.D{{Key: "updateRole", Value: "controllers"}, {Key: "privileges", Value: less}})
		err := ns.Check(t.Context())
		switch {
		case err != nil && (!mongostore.IsPrivilege(err) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "grant")):
			t.Errorf("without %s: %v, want one line that names what to grant", p.Action, err)
		case (err == nil) != (p.Without != ""):
			t.Errorf("without %s: %v, want an error only for a required privilege", p.Action, err)
		default:
			t.Logf("without %s: %v", p.Action, err)
		}
	}

	srv := open("server", mongostore.RoleFor(mongostore.Server, "servers", mongostore.On{Databases: []string{db}}))
	at, err := srv.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := srv.Watch(t.Context(), at, []record.KindSpec{{Name: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	stream.Close(t.Context())
	if err := srv.Check(t.Context()); !mongostore.IsPrivilege(err) {
		t.Errorf("a server may do what a controller does: %v", err)
	}
	if _, err := srv.Identity(t.Context()); err != nil {
		t.Error(err)
	}
	t.Run("forged keys", func(t *testing.T) { forgedKeyState(t, root.Database(db), srv) }) //nolint:paralleltest // it has the server
	t.Run("application", func(t *testing.T) { applicationsLogin(t, root, server.URI()) })  //nolint:paralleltest // it has the server
}
