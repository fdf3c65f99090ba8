package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/engine/switchover"
)

// TestFewPrivileges: with no more than readWrite and dbAdmin on its databases a controller
// plans, proves and switches, and says what it cannot do. When a privilege that only the
// rollback needs is taken away, the switch waits until it is granted again. After an administrator
// has dropped the user and created it again, every shard goes on and the rollback takes place, with
// the same process.
func TestFewPrivileges(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	server := authServer(ctx, t)
	s := newSystem(ctx, t, settings{
		uris: map[string]string{"v1": server.URI(), "v2": server.URI()}, service: "shop.example.com",
		copy: "{auto: false, workers: 2, throttle: off}", // measuring takes clusterMonitor
	})
	docs := make([]any, 50)
	for i := range docs {
		docs[i] = packageDoc("v1", packageKey(i), 0)
	}
	if _, err := s.db["v1"].Collection(packagesKind).InsertMany(ctx, docs); err != nil {
		t.Fatal(err)
	}
	admin := s.db["v1"].Client().Database("admin")
	run := func(cmd bson.D) {
		t.Helper()
		if err := admin.RunCommand(ctx, cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	both := func(version string) bson.A {
		roles := bson.A{}
		for _, role := range []string{"readWrite", "dbAdmin"} {
			roles = append(roles, bson.D{{Key: "role", Value: role}, {Key: "db", Value: s.db[version].Name()}})
		}
		return roles
	}
	user := bson.D{{Key: "createUser", Value: "mover"}, {Key: "pwd", Value: secret}, {Key: "roles", Value: append(both("v1"), both("v2")...)}}
	run(user)
	login := withLogin(server.URI(), "mover:"+secret)
	s.env = append(s.env, "MONGO_V1="+login, "MONGO_V2="+login)
	s.controller("controller", breakPoint{}).ready(ctx)

	report := s.plan(ctx)
	for _, want := range []struct{ area, text string }{
		{"fence", "not class view: "}, {"privileges", "cannot end open transactions"}, {"oplog", "grant clusterMonitor"},
		{"load", "copy.throttle is off"},
	} {
		if c := finding(report, want.area, want.text); c.GetVerdict() != dbv1.PlanCheck_WARNING {
			t.Errorf("%s: no warning that says %q", want.area, want.text)
		}
	}
	if c := finding(report, "rollback", "proved: "); c.GetVerdict() != dbv1.PlanCheck_OK || !report.GetOk() {
		t.Errorf("ok %t, rollback %v", report.GetOk(), c)
	}

	run(bson.D{{Key: "revokeRolesFromUser", Value: "mover"}, {Key: "roles", Value: both("v1")}})
	run(bson.D{{Key: "grantRolesToUser", Value: "mover"}, {Key: "roles", Value: bson.A{
		bson.D{{Key: "role", Value: "read"}, {Key: "db", Value: s.db["v1"].Name()}}}}})
	s.begin(ctx)
	o := s.awaitReadiness(ctx, "a failed proof", func(o *switchover.Readiness) bool { return strings.HasPrefix(o.Rollback, "not proved: ") })
	if !strings.Contains(o.Rollback, "privilege") || !strings.Contains(o.Rollback, "grant") {
		t.Errorf("the readiness report is %+v", o)
	}
	run(bson.D{{Key: "grantRolesToUser", Value: "mover"}, {Key: "roles", Value: both("v1")}})
	s.await(ctx, "the flip", flipped("v2"))
	s.awaitSync(ctx)

	// The server logs out all connections of a dropped user, for good.
	since := time.Now()
	run(bson.D{{Key: "dropUser", Value: "mover"}})
	eventually(ctx, t, "every shard reports the refused user", func() error {
		ps, err := s.record.Progress(ctx)
		if err != nil {
			return err
		}
		for _, p := range ps {
			if !strings.Contains(p.LastError+p.WaitsFor, "auth") {
				return fmt.Errorf("shard %d is %s, waits for %q; %q", p.Shard, p.State, p.WaitsFor, p.LastError)
			}
		}
		return nil
	})
	if _, err := s.db["v2"].Collection(packagesKind).UpdateMany(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(7)}}}}); err != nil {
		t.Fatal(err)
	}
	t.Logf("every shard reports the refused user after %v", time.Since(since).Round(time.Millisecond))
	since = time.Now()
	run(user)
	s.awaitSync(ctx)
	t.Logf("every shard goes on after %v", time.Since(since).Round(time.Millisecond))
	s.beginTo(ctx, "v1")
	s.await(ctx, "the rollback", flipped("v1"))
	if n, err := s.db["v1"].Collection(packagesKind).CountDocuments(ctx, bson.D{{Key: "n", Value: int64(7)}}); err != nil || n != int64(len(docs)) {
		t.Errorf("%d of %d documents came back with their last change, %v", n, len(docs), err)
	}
}
