package controller

import (
	"context"
	"strings"
	"testing"

	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/record"
	"dbcontroller/record/mongostore"
)

// spreadSpace is a database of which only the sharding matters.
type spreadSpace struct {
	record.Namespace
	sharding mongostore.Sharding
}

func (spreadSpace) Sweep(context.Context, string) error { return nil }

func (s spreadSpace) Sharding(context.Context, record.KindSpec, string) (mongostore.Sharding, error) {
	return s.sharding, nil
}

// TestPlanSpread is what a plan says of where records go: on which side a record with the
// _id MaxKey is not safe, and that a target is not sharded as its source is.
func TestPlanSpread(t *testing.T) {
	t.Parallel()
	sharded := func(key string, maxKey bool) mongostore.Sharding {
		return mongostore.Sharding{Cluster: true, Key: key, MaxKey: maxKey}
	}
	for name, tc := range map[string]struct {
		source, target mongostore.Sharding
		want           pb.PlanCheck_Verdict
		text           string
	}{
		"nothing is sharded":          {sharded("", false), sharded("", false), pb.PlanCheck_OK, ""},
		"nothing, with a MaxKey":      {sharded("", true), sharded("", false), pb.PlanCheck_OK, ""},
		"alike":                       {sharded(mongostore.ByRange, false), sharded(mongostore.ByRange, false), pb.PlanCheck_OK, "sharded by {_id: 1}"},
		"the target is not":           {sharded(mongostore.ByHash, false), sharded("", false), pb.PlanCheck_WARNING, "all of its records go to one shard"},
		"the target is in no cluster": {sharded(mongostore.ByHash, false), mongostore.Sharding{}, pb.PlanCheck_WARNING, "all records must fit there"},
		"a MaxKey by hash":            {sharded(mongostore.ByHash, true), sharded(mongostore.ByHash, true), pb.PlanCheck_OK, `sharded by {_id: "hashed"}`},
		"a MaxKey in the source":      {sharded(mongostore.ByRange, true), sharded(mongostore.ByHash, true), pb.PlanCheck_FAILED, "holds a record with the _id MaxKey"},
		"a MaxKey for the target":     {sharded("", true), sharded(mongostore.ByRange, false), pb.PlanCheck_FAILED, "or shard by the hash of _id"},
		"a MaxKey in the target":      {sharded(mongostore.ByHash, false), sharded(mongostore.ByRange, true), pb.PlanCheck_FAILED, "there is a record with the _id MaxKey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newShapeWorld(t)
			w.app.scratches = map[string]Space{
				"v1": spreadSpace{w.db["v1"], tc.source}, "v2": spreadSpace{w.db["v2"], tc.target},
			}
			p := &plan{app: w.app, record: w.record(), dir: w.dir, report: &pb.PlanReport{}}
			if err := p.spread(t.Context()); err != nil {
				t.Fatal(err)
			}
			verdict, text := pb.PlanCheck_OK, ""
			for _, c := range p.report.Checks {
				verdict = max(verdict, c.GetVerdict())
				text += c.GetText() + "\n"
			}
			if verdict != tc.want || !strings.Contains(text, tc.text) || tc.text == "" && text != "" {
				t.Errorf("%s: %s; want %s with %q", verdict, text, tc.want, tc.text)
			}
		})
	}
}
