package preflight

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/bbs"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// holder is a database that cannot hold some kind.
type holder struct {
	*memstore.Store
	not string
}

func (h holder) Holds(_ context.Context, kind record.KindSpec) error {
	if kind.Name == h.not {
		return &record.UnsupportedError{What: "kind " + kind.Name, Reason: "it has no indexes"}
	}
	return nil
}

// TestPlanSaysWhatTheTargetCannotHold, before anything is copied: records and groups that are
// too large, kinds that cannot be there, and what cannot come back.
func TestPlanSaysWhatTheTargetCannotHold(t *testing.T) {
	t.Parallel()
	wide := record.Survey{MaxDocument: 16 << 20}
	small := record.Survey{MaxDocument: 4 << 10, MaxGroup: 6, MaxBytes: 16 << 10, Raise: "raise it"}
	for name, tc := range map[string]struct {
		definitions, bytes int
		from, to           record.Survey
		not                string
		want               pb.PlanCheck_Verdict
		subject, text      string
	}{
		"all fits":       {3, 100, wide, small, "", pb.PlanCheck_OK, "v1", "the largest group 4 records"},
		"large records":  {3, 5 << 10, wide, small, "", pb.PlanCheck_FAILED, bbs.KindDefinitions, "3 records have more than the 4.0 KiB that the database of v1 accepts, the largest 5.0 KiB: make them smaller, or raise it"},
		"many records":   {5, 100, wide, small, "", pb.PlanCheck_FAILED, "v1", "1 groups exceed its limit for a transaction of 6 records and kinds together"},
		"one kind more":  {4, 100, wide, small, "", pb.PlanCheck_FAILED, "v1", "the largest has up to 5 records of 2 kinds"},
		"bytes besides":  {3, 100, wide, record.Survey{MaxDocument: 4 << 10, MaxGroup: 6, MaxBytes: 4 << 10, PerRecord: 1 << 10}, "", pb.PlanCheck_FAILED, "v1", "or 4.0 KiB"},
		"much together":  {4, 4<<10 - 100, wide, record.Survey{MaxDocument: 4 << 10, MaxGroup: 9, MaxBytes: 8 << 10}, "", pb.PlanCheck_FAILED, "v1", "or 8.0 KiB"},
		"guards count":   {3, 100, wide, record.Survey{MaxDocument: 4 << 10, MaxGroup: 9, GuardsCount: true}, "", pb.PlanCheck_FAILED, "v1", "1 groups exceed its limit for a transaction of 9 records and kinds together"},
		"wider":          {3, 100, small, wide, "", pb.PlanCheck_WARNING, "v2", "the reverse sync parks larger records"},
		"equal":          {3, 100, wide, wide, "", 0, "", ""},
		"a kind cannot":  {3, 100, wide, wide, bbs.KindDesiredLRPs, pb.PlanCheck_FAILED, bbs.KindDesiredLRPs, "the database of v1 cannot hold it: it has no indexes"},
		"another cannot": {3, 100, wide, wide, "other", 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := transform.NewRegistry(bbs.Service)
			if err := bbs.Register(registry); err != nil {
				t.Fatal(err)
			}
			dir, err := registry.Direction("v2", "v1")
			if err != nil {
				t.Fatal(err)
			}
			source := memstore.New()
			p := &plan{
				Planner: &Planner{PlannerParts: PlannerParts{Space: func(v string) Space {
					if v == "v1" {
						return holder{memstore.New(), tc.not}
					}
					return source
				}}},
				dir: dir, report: &pb.PlanReport{}, infos: map[string]record.Info{},
				surveys: map[string]record.Survey{"v2": tc.from, "v1": tc.to},
			}
			for _, k := range dir.TargetKinds() {
				p.like = append(p.like, scratchKind{kind: k.Name, spec: k})
			}
			for kind, keys := range map[string][]string{bbs.KindDeployments: {"a"}, bbs.KindDefinitions: definitions("a", tc.definitions)} {
				spec, physical := record.KindSpec{Name: kind}, kind+".n1"
				if tc.to.GuardsCount {
					spec.Fixed, physical = true, kind
				}
				tok, err := source.Provision(t.Context(), spec, physical)
				if err != nil {
					t.Fatal(err)
				}
				p.infos[kind] = record.Info{Exists: true, Token: tok}
				fill(t, source, tok, keys, tc.bytes)
			}
			if err := p.limits(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tc.text == "" {
				if len(p.report.Checks) > 0 {
					t.Errorf("it finds %v", p.report.Checks)
				}
				return
			}
			c := p.report.Checks[0]
			if c.Verdict != tc.want || c.Subject != tc.subject || !strings.Contains(c.Text, tc.text) {
				t.Errorf("%v; want %s of %s with %q", c, tc.want, tc.subject, tc.text)
			}
			if p.refused != (tc.not == bbs.KindDesiredLRPs) {
				t.Errorf("refused: %t", p.refused)
			}
		})
	}
}

func definitions(guid string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s/%d", guid, i))
	}
	return keys
}

// fill loads documents of about so many bytes.
func fill(t *testing.T, s *memstore.Store, tok record.Token, keys []string, bytes int) {
	t.Helper()
	b := record.Batch{Tokens: record.Tokens{tok.Kind: tok}, Epoch: 1}
	for _, key := range keys {
		doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "filler", Value: make([]byte, bytes)}})
		if err != nil {
			t.Fatal(err)
		}
		b.Groups = append(b.Groups, record.GroupWrite{Group: key, Version: record.Version{1}, Writes: []record.Write{{Kind: tok.Kind, Key: record.StringKey(key), Doc: doc}}})
	}
	if _, err := s.Load(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}
