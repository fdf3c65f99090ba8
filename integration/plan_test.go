package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// plan asks a controller for a plan of the upgrade to v2.
func (s *system) plan(ctx context.Context) *dbv1.PlanReport {
	s.t.Helper()
	res, err := s.apis()[0].Plan(ctx, connect.NewRequest(&dbv1.PlanRequest{TargetVersion: "v2"}))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range res.Msg.GetChecks() {
		s.t.Logf("%-8s %-12s %-14s %s", c.GetVerdict(), c.GetArea(), c.GetSubject(), c.GetText())
	}
	return res.Msg
}

// finding returns what a plan says of an area that has a text in it.
func finding(r *dbv1.PlanReport, area, text string) *dbv1.PlanCheck {
	for _, c := range r.GetChecks() {
		if c.GetArea() == area && strings.Contains(c.GetText(), text) {
			return c
		}
	}
	return nil
}

// scratchLeft are the scratch collections that are left in the databases of a system.
func (s *system) scratchLeft(ctx context.Context) []string {
	s.t.Helper()
	var left []string
	for v, db := range s.db {
		names, err := db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: "dbc_proof_|dbc_plan_|dbc_selftest"}}})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, n := range names {
			left = append(left, v+"."+n)
		}
	}
	return left
}

// TestPlan looks at everything, fails nothing, and changes nothing.
func TestPlan(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	tr := newTraffic(ctx, s, documents)
	s.controller("controller", breakPoint{}).ready(ctx)
	tr.start(ctx, s.server("server", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 10)
	before, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	report := s.plan(ctx)
	for _, want := range []struct{ area, text string }{
		{"upgrade", "it may begin"}, {"controllers", "1 of them run"}, {"servers", "new enough"},
		{"privileges", "all of this was tried"}, {"server", "MongoDB"}, {"collections", "records"}, {"names", "are free"},
		{"indexes", "_id"}, {"fence", "class view"}, {"fence", "class uuid"}, {"copy", "all can be migrated"}, {"copy", "a second"},
		{"space", "are free"}, {"oplog", "changes reach back"}, {"rollback", "proved: "}, {"pause", "writes will be held"},
	} {
		if c := finding(report, want.area, want.text); c == nil || c.GetVerdict() == dbv1.PlanCheck_FAILED {
			t.Errorf("nothing of %s that says %q", want.area, want.text)
		}
	}
	if !report.GetOk() || report.EstimatedCopySeconds == nil || report.GetPredictedPauseMillis() <= 0 {
		t.Errorf("ok %t, copy %v, pause %v", report.GetOk(), report.EstimatedCopySeconds, report.PredictedPauseMillis)
	}
	after, err := s.record.Get(ctx)
	if err != nil || after.Revision != before.Revision {
		t.Errorf("%v: the record has revision %d, before %d", err, after.Revision, before.Revision)
	}
	if left := s.scratchLeft(ctx); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestPlanEndsWithItsCaller: a plan that is interrupted while it tries things ends at the
// controller, too, and leaves nothing behind.
func TestPlanEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	newTraffic(ctx, s, documents)
	s.controller("controller", breakPoint{}).ready(ctx)
	asking, interrupt := context.WithCancel(ctx)
	defer interrupt()
	stream, err := s.apis()[0].StreamPlan(asking, connect.NewRequest(&dbv1.PlanRequest{TargetVersion: "v2"}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	tried := false
	for !tried && stream.Receive() {
		tried = strings.Contains(stream.Msg().GetWork().GetDoing(), "copies a sample")
	}
	interrupt()
	if !tried {
		t.Fatalf("it never came so far: %v", stream.Err())
	}
	// Another one is refused until the first has ended; this one would do nothing.
	for {
		_, err := s.apis()[0].Plan(ctx, connect.NewRequest(&dbv1.PlanRequest{TargetVersion: "v9"}))
		if err == nil || strings.Contains(err.Error(), "cannot be reached") {
			break
		}
		if !strings.Contains(err.Error(), "a plan is being made already") {
			t.Fatal(err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the first plan does not end")
		}
	}
	if left := s.scratchLeft(ctx); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestPlanFindsProblems before anybody runs into them.
func TestPlanFindsProblems(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	broken := noReverseSync
	broken.kinds = "[{from: packages, to: packages, lens: packages.yaml, indexes: {packages: [{key: {schema: 1}, unique: true}]}}]"
	s := newSystem(ctx, t, broken)
	s.fillUnique(ctx)
	s.controller("controller", breakPoint{}).ready(ctx)
	lease, err := s.etcd.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.record.Register(ctx, lease, upgradestate.ServerState{ID: "old", Protocol: 1, Versions: []string{"v1"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.db["v2"].CreateCollection(ctx, packagesKind); err != nil {
		t.Fatal(err)
	}
	report := s.plan(ctx)
	for _, want := range []struct {
		area, text string
		verdict    dbv1.PlanCheck_Verdict
	}{
		{"servers", "knows only v1", dbv1.PlanCheck_FAILED},
		{"names", "rename or remove it", dbv1.PlanCheck_FAILED},
		{"copy", "schema_1", dbv1.PlanCheck_WARNING},
		{"indexes", "unique: schema_1", dbv1.PlanCheck_OK},
		{"controllers", "second one", dbv1.PlanCheck_WARNING},
	} {
		if c := finding(report, want.area, want.text); c.GetVerdict() != want.verdict {
			t.Errorf("%s: %q is %s, want %s", want.area, want.text, c.GetVerdict(), want.verdict)
		}
	}
	if report.GetOk() {
		t.Error("the upgrade must be fine")
	}
	if left := s.scratchLeft(ctx); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := lease.Close(ctx); err != nil {
		t.Error(fmt.Errorf("close lease: %w", err))
	}
}
