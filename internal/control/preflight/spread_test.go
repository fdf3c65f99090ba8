package preflight

import (
	"context"
	"strings"
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
)

// spreadSpace is a database of which only the sharding matters.
type spreadSpace struct {
	record.Namespace
	sharding record.Sharding
}

func (spreadSpace) Sweep(context.Context, string) error { return nil }

func (s spreadSpace) Sharding(context.Context, record.KindSpec, string) (record.Sharding, error) {
	return s.sharding, nil
}

// TestPlanSpread is what a plan says of where records go: on which side a record with the
// _id MaxKey is not safe, and that a target is not sharded as its source is.
func TestPlanSpread(t *testing.T) {
	t.Parallel()
	const byRange, byHash = "{_id: 1}", `{_id: "hashed"}`
	sharded := func(key string, maxKey bool) record.Sharding {
		s := record.Sharding{Cluster: true, Key: key, MaxKey: maxKey}
		if key == byRange {
			s.Loses = "it is left behind: shard by the hash of _id"
		}
		return s
	}
	for name, tc := range map[string]struct {
		source, target record.Sharding
		want           pb.PlanCheck_Verdict
		text           string
	}{
		"nothing is sharded":          {sharded("", false), sharded("", false), pb.PlanCheck_OK, ""},
		"nothing, with a MaxKey":      {sharded("", true), sharded("", false), pb.PlanCheck_OK, ""},
		"alike":                       {sharded(byRange, false), sharded(byRange, false), pb.PlanCheck_OK, "sharded by {_id: 1}"},
		"the target is not":           {sharded(byHash, false), sharded("", false), pb.PlanCheck_WARNING, "all records go to one shard"},
		"the target is in no cluster": {sharded(byHash, false), record.Sharding{}, pb.PlanCheck_WARNING, "all records must fit there"},
		"a MaxKey by hash":            {sharded(byHash, true), sharded(byHash, true), pb.PlanCheck_OK, `sharded by {_id: "hashed"}`},
		"a MaxKey in the source":      {sharded(byRange, true), sharded(byHash, true), pb.PlanCheck_FAILED, "has a record with the _id MaxKey"},
		"a MaxKey for the target":     {sharded("", true), sharded(byRange, false), pb.PlanCheck_FAILED, "left behind: shard by the hash of _id"},
		"a MaxKey in the target":      {sharded(byHash, false), sharded(byRange, true), pb.PlanCheck_FAILED, "there is a record with the _id MaxKey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spaces := map[string]Space{"v1": spreadSpace{memstore.New(), tc.source}, "v2": spreadSpace{memstore.New(), tc.target}}
			planner := NewPlanner(PlannerParts{
				Space:   func(version string) Space { return spaces[version] },
				Belongs: func(context.Context, ...string) error { return nil },
			})
			p := &plan{Planner: planner, dir: emptyDirection(t), report: &pb.PlanReport{}}
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
