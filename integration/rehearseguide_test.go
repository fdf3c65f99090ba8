package integration_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// guide returns the YAML files that the guide shows, by name, and the records of its shop.
func guide(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "program.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```yaml\n# ([a-z/]+\\.yaml)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		files[m[1]] = m[2]
	}
	return files
}

// TestRehearseGuide rehearses the guide's own configuration, which has kinds of all sorts,
// with the roles that 'plan' asks for and no more, while a client has a transaction open
// the whole time: it can commit, and nothing took the lock that all clients wait for.
func TestRehearseGuide(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	files := guide(t)
	_, kinds, ok := strings.Cut(files["shop.yaml"], "kinds:\n")
	if !ok || !strings.Contains(kinds, "discontinued: true") {
		t.Fatalf("the guide's configuration is %q", files["shop.yaml"])
	}
	server := authServer(ctx, t)
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": server.URI(), "v2": server.URI()}, service: "shop.example.com",
		kinds: "\n" + kinds, copy: "{auto: false, throttle: off}",
	})
	for name, text := range files {
		if strings.HasPrefix(name, "lenses/") {
			if err := os.MkdirAll(filepath.Join(s.dir, "lenses"), 0o700); err != nil {
				t.Fatal(err)
			}
			s.write(name, text)
		}
	}
	c, db := collections{t}, s.db["v1"]
	for i := range 30 {
		c.insert(db, "customers", `{"_id":"customers/c%d","name":"Ann Lee","mail":"a@example.com","since":{"$numberLong":"1700000000"},"addresses":[{"id":"home","street":"High St"}]}`, i)
		c.insert(db, "orders", `{"_id":%d,"customer":"customers/c%[1]d","state":"paid"}`, i)
	}
	c.insert(db, "products", `{"_id":"products/lamp","title":"Lamp"}`)
	c.insert(db, "stock", `{"_id":"products/lamp/stock","left":3}`)
	c.insert(db, "audit_log", `{"_id":1}`)

	admin := db.Client().Database("admin")
	run := func(cmd bson.D) bson.Raw {
		t.Helper()
		raw, err := admin.RunCommand(ctx, cmd).Raw()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	roles := func(suffix string) bson.A {
		out := bson.A{}
		for _, version := range []string{"v1", "v2"} {
			for _, role := range []string{"readWrite", "dbAdmin"} {
				out = append(out, bson.D{{Key: "role", Value: role}, {Key: "db", Value: s.db[version].Name() + suffix}})
			}
		}
		return out
	}
	run(bson.D{{Key: "createUser", Value: "mover"}, {Key: "pwd", Value: secret}, {Key: "roles", Value: roles("")}})
	login := withLogin(server.URI(), "mover:"+secret)
	s.env = append(s.env, "MONGO_V1="+login, "MONGO_V2="+login)
	process := s.controller("controller", breakPoint{}).ready(ctx)
	api, _ := process.addresses()
	rehearse := func() result {
		return execute(ctx, t, nil, "rehearse", "--server", api, "--json", "--sample", "20")
	}

	// Without the roles on the scratch databases it says which are missing, as the plan does.
	scratch := s.db["v1"].Name() + "_dbcrehearsal"
	want := "grant the roles readWrite and dbAdmin on " + scratch
	if found := finding(s.plan(ctx), "rehearsal", want); found.GetVerdict() != dbv1.PlanCheck_WARNING {
		t.Errorf("plan: %v", found)
	}
	if r := rehearse(); r.code == 0 || !strings.Contains(r.stderr, "grant the roles readWrite and dbAdmin on "+s.db["v2"].Name()) {
		t.Errorf("without roles: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	run(bson.D{{Key: "grantRolesToUser", Value: "mover"}, {Key: "roles", Value: roles("_dbcrehearsal")}})
	if found := finding(s.plan(ctx), "rehearsal", "can create and drop the database "+scratch); found.GetVerdict() != dbv1.PlanCheck_OK {
		t.Errorf("plan: %v", found)
	}

	// A strong user, who could take every lock and end every session: the rehearsal does not.
	run(bson.D{{Key: "grantRolesToUser", Value: "mover"}, {Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "root"}, {Key: "db", Value: "admin"}}}}})
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the test is over
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	in := mongo.NewSessionContext(ctx, session)
	mine := client.Database(db.Name()).Collection("orders")
	if _, err := mine.InsertOne(in, bson.D{{Key: "_id", Value: 1000}, {Key: "customer", Value: "customers/c1"}, {Key: "state", Value: "new"}}); err != nil {
		t.Fatal(err)
	}
	applied := func() int64 {
		raw := run(bson.D{{Key: "serverStatus", Value: 1}})
		n, _ := raw.Lookup("metrics", "commands", "applyOps", "total").AsInt64OK()
		killed, _ := raw.Lookup("metrics", "commands", "killAllSessionsByPattern", "total").AsInt64OK()
		return n + killed
	}
	before := applied()
	r := rehearse()
	if r.code != 0 {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if n := applied() - before; n != 0 {
		t.Errorf("%d commands took the lock of the whole server, or ended sessions", n)
	}
	if err := session.CommitTransaction(ctx); err != nil {
		t.Errorf("the transaction that was open all the time: %v", err)
	}
	report := r.json(t)
	if switches, _ := report["switches"].([]any); len(switches) != 2 || report["copied"] != "62" {
		t.Errorf("the report is %s", r.stdout)
	}
}
