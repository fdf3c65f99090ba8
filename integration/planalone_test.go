package integration_test

import (
	"context"
	"crypto/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/protobuf/encoding/protojson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// planAlone makes a plan from the configuration alone, and fails the test if that changes
// anything anywhere.
func (s *system) planAlone(ctx context.Context) *dbv1.PlanReport {
	s.t.Helper()
	before, writes := s.everything(ctx, s.t), s.writes(ctx)
	r := execute(ctx, s.t, s.env, "plan", "--config", s.config, "--json")
	if diff := cmp.Diff(before, s.everything(ctx, s.t)); diff != "" {
		s.t.Errorf("the plan has changed something (-before +after):\n%s", diff)
	}
	if all := writes(); len(all) > 0 {
		s.t.Errorf("the plan only reads, and wrote %v", all)
	}
	report := &dbv1.PlanReport{}
	if err := protojson.Unmarshal([]byte(r.stdout), report); err != nil {
		s.t.Fatalf("exit %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	if (r.code == 0) != report.GetOk() {
		s.t.Errorf("exit %d of a plan that says %t", r.code, report.GetOk())
	}
	for _, c := range report.GetChecks() {
		s.t.Logf("%-8s %-12s %-14s %s", c.GetVerdict(), c.GetArea(), c.GetSubject(), c.GetText())
	}
	return report
}

// writes returns a look at what has been written to the system's databases on MongoDB from now on,
// the notes about them in the oplog included, which no database shows.
func (s *system) writes(ctx context.Context) func() []bson.M {
	s.t.Helper()
	from := map[*mongo.Database]bson.Timestamp{}
	for _, db := range s.db {
		var last struct{ TS bson.Timestamp }
		newest := options.FindOne().SetSort(bson.D{{Key: "$natural", Value: -1}})
		if err := oplogOf(db).FindOne(ctx, bson.D{}, newest).Decode(&last); err != nil {
			s.t.Fatal(err)
		}
		from[db] = last.TS
	}
	return func() (all []bson.M) {
		s.t.Helper()
		for db, ts := range from {
			name := regexp.QuoteMeta(db.Name())
			of := bson.Regex{Pattern: `^` + name + `\.`}
			cursor, err := oplogOf(db).Find(ctx, bson.D{{Key: "ts", Value: bson.D{{Key: "$gt", Value: ts}}}, {Key: "$or", Value: bson.A{
				bson.D{{Key: "ns", Value: of}},
				bson.D{{Key: "o.applyOps.ns", Value: of}}, // of a transaction
				bson.D{{Key: "o.dbcontroller", Value: bson.Regex{Pattern: `\b` + name + `$`}}},
			}}})
			var some []bson.M
			if err == nil {
				err = cursor.All(ctx, &some)
			}
			if err != nil {
				s.t.Fatal(err)
			}
			all = append(all, some...)
		}
		return all
	}
}

func oplogOf(db *mongo.Database) *mongo.Collection {
	return db.Client().Database("local").Collection("oplog.rs")
}

// TestPlanWithoutAController says what can be known by reading, before anything of the
// deployment is there, and again when it has lived and all of its processes are away.
func TestPlanWithoutAController(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	s.fill(ctx, newLedger("package"), documents)
	first := s.planAlone(ctx)
	for _, want := range []struct{ area, text string }{
		{"plan", "only reads"}, {"server", "MongoDB"}, {"collections", "records"}, {"names", "are free"}, {"indexes", "_id"},
		{"collections", "the first controller creates it"}, {"copy", "all can be migrated"}, {"copy", "without writing"}, {"space", "needs about"},
	} {
		if c := finding(first, want.area, want.text); c == nil || c.GetVerdict() == dbv1.PlanCheck_FAILED {
			t.Errorf("nothing of %s that says %q", want.area, want.text)
		}
	}
	for _, c := range first.GetChecks() {
		if c.GetVerdict() == dbv1.PlanCheck_FAILED && c.GetArea() != "oplog" { // that of a server which was just started is short
			t.Errorf("%s %s: %s", c.GetArea(), c.GetSubject(), c.GetText())
		}
	}
	if first.GetFromVersion() != "v1" || first.GetToVersion() != "v2" || first.EstimatedCopySeconds == nil || first.PredictedPauseMillis != nil {
		t.Errorf("%s -> %s, copy %v, pause %v", first.GetFromVersion(), first.GetToVersion(), first.EstimatedCopySeconds, first.PredictedPauseMillis)
	}

	controller := s.controller("controller", breakPoint{}).ready(ctx)
	server := s.server("server", 0).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	server.terminate(patience)
	controller.terminate(patience)
	if later := s.planAlone(ctx); later.GetFromVersion() != "v2" || later.GetToVersion() != "v1" {
		t.Errorf("after the switch: %s -> %s", later.GetFromVersion(), later.GetToVersion())
	}

	// The databases know of a record that this etcd does not have.
	s.etcdBecomes(ctx, nil)
	if r := execute(ctx, t, s.env, "plan", "--config", s.config); r.code != 4 || r.stdout != "" || !strings.Contains(r.stderr, "belongs to "+s.name) {
		t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestPlanOfPrefixesThatMeet: of two deployments in one etcd the keys of one are among those of
// the other. A plan says so before anything has begun, whichever is above, and changes nothing.
func TestPlanOfPrefixesThatMeet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	endpoint, prefix := sharedEtcd.endpoints(t)[0], "/meets-"+strings.ToLower(rand.Text())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close() //nolint:errcheck // nothing is left to do with it
	s := newSystem(ctx, t, settings{kinds: "[]", records: map[string]string{"v2": inEtcd(endpoint, ", prefix: "+prefix+"/bbs")}})
	for key, want := range map[string]string{
		prefix + "/i":      "another namespace has all keys below " + prefix + "/", // the identity of one that has begun
		prefix + "/bbs/eu": "there are other keys below it already, " + prefix + "/bbs/eu",
	} {
		if _, err := etcd.Put(ctx, key, rand.Text()); err != nil {
			t.Fatal(err)
		}
		report := s.planAlone(ctx)
		if c := finding(report, "server", want); report.GetOk() || c == nil || c.GetVerdict() != dbv1.PlanCheck_FAILED {
			t.Errorf("the plan does not fail by %q", want)
		}
		if now, err := etcd.Get(ctx, prefix, clientv3.WithPrefix()); err != nil || len(now.Kvs) != 1 || string(now.Kvs[0].Key) != key {
			t.Errorf("there are %v, %v", now, err)
		}
		if _, err := etcd.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range s.planAlone(ctx).GetChecks() {
		if c.GetArea() == "server" && c.GetVerdict() == dbv1.PlanCheck_FAILED {
			t.Errorf("nobody is in its way, and the plan says %s", c.GetText())
		}
	}
}
