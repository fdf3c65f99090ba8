package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// TestRehearse does the whole upgrade into scratch databases, under traffic: the report
// tells of the copy, of the switch there and back, and of a record that cannot be moved;
// afterwards nothing is there that was not there before. The database stores the lines of the
// orders with their _id in another place than the application does. The plan and the rehearsal
// find no difference in that.
func TestRehearse(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[{from: packages, to: packages, lens: packages.yaml}, {from: orders, to: orders, lens: orders.yaml}]"})
	s.write("orders.yaml", innerIDLens)
	s.insertOrders(ctx, 30)
	tr := newTraffic(ctx, s, 2*appClients*ownDocuments)
	c := s.controller("controller", breakPoint{}).ready(ctx)
	tr.start(ctx, s.server("server", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 20)
	api, _ := c.addresses()
	plan := s.plan(ctx)
	for area, text := range map[string]string{"copy": "all can be migrated", "rollback": "proved: "} {
		if found := finding(plan, area, text); found.GetVerdict() != dbv1.PlanCheck_OK {
			t.Errorf("the plan has no good news of %s that says %q", area, text)
		}
	}

	rehearse := func(args ...string) result {
		return execute(ctx, t, nil, append([]string{"rehearse", "--server", api, "--json"}, args...)...)
	}
	r := rehearse("--sample", "50")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	report := r.json(t)
	for _, field := range []string{"copied", "compared", "bytes"} {
		if report[field] == nil || report[field] == "0" {
			t.Errorf("%s is %v", field, report[field])
		}
	}
	switches, _ := report["switches"].([]any)
	if len(switches) != 2 {
		t.Fatalf("switches: %v", report["switches"])
	}
	for i, want := range []string{"v1", "v2"} {
		if got := switches[i].(map[string]any)["from"]; got != want {
			t.Errorf("switch %d is from %v, want %s", i, got, want)
		}
	}
	for _, line := range []string{"copy everything", "switch a sample to v2", "switch a sample to v1"} {
		if !strings.Contains(r.stderr, line) {
			t.Errorf("progress does not tell of %q: %s", line, r.stderr)
		}
	}

	broken := bson.D{{Key: "_id", Value: "0-broken"}, {Key: "section", Value: "a"}, {Key: "category", Value: "b"}}
	if _, err := s.db["v1"].Collection(packagesKind).InsertOne(ctx, broken); err != nil {
		t.Fatal(err)
	}
	r = rehearse("--sample", "50")
	if r.code != 1 || !strings.Contains(r.stdout, "0-broken") {
		t.Errorf("a record that cannot be moved: exit code %d, %s", r.code, r.stdout)
	}
	if _, err := s.db["v1"].Collection(packagesKind).DeleteOne(ctx, bson.D{{Key: "_id", Value: "0-broken"}}); err != nil {
		t.Fatal(err)
	}

	names, err := s.db["v1"].Client().ListDatabaseNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "_dbcrehearsal$"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, s.db["v1"].Name()) || strings.HasPrefix(name, s.db["v2"].Name()) {
			t.Errorf("database %s is left", name)
		}
	}
	s.begin(ctx)
	tr.settle(ctx, s.await(ctx, "the flip", flipped("v2")))
}

// insertOrders gives v1 orders with two lines each. The _id of a line is its last field, as Mongoose
// writes it, or its first one. That of every second order is a symbol, which an index takes for a string.
func (s *system) insertOrders(ctx context.Context, n int) {
	s.t.Helper()
	docs := make([]any, n)
	for i := range docs {
		id := []any{bson.NewObjectID(), bson.Symbol(fmt.Sprint("order ", i))}[i%2]
		docs[i] = bson.D{{Key: "_id", Value: id}, {Key: "lines", Value: bson.A{
			bson.D{{Key: "n", Value: 1}, {Key: "_id", Value: bson.NewObjectID()}},
			bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "n", Value: 2}},
		}}}
	}
	if _, err := s.db["v1"].Collection("orders").InsertMany(ctx, docs); err != nil {
		s.t.Fatal(err)
	}
}
