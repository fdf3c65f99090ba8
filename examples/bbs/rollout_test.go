package bbs

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/bbs/cell"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/vrunner"
)

// bothSchedules runs a test of v1's clients over either version's data.
func bothSchedules(t *testing.T, test func(s *scheduler)) {
	for name, over := range map[string]struct {
		kinds      []string
		stack      func(vrunner.Store) http.Handler
		controller func(vrunner.Store, time.Duration) vrunner.Controller
	}{
		"v1 data": {kindsV1, func(s vrunner.Store) http.Handler { return StackV1(s, nil) }, ControllerV1},
		"v2 data": {kindsV2, func(s vrunner.Store) http.Handler { return StackV2(s) }, ControllerV2},
	} {
		t.Run(name, func(t *testing.T) { schedule(t, over.kinds, over.stack, over.controller, test) })
	}
}

// roll has a client of v1 replace the definition of p. failing are the indexes at which it crashes.
func (s *scheduler) roll(id string, failing ...string) {
	s.t.Helper()
	d := lrpV1("p", "cf").Definition
	d.LogGuid = id
	if failing != nil {
		d.Action = &bbsv1.Action{Path: cell.FailingPath, Args: failing}
	}
	updateV1(s.t, s.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", DefinitionId: id, Definition: d})
}

// on returns what runs at each index of p: the log guids of the definitions.
func (s *scheduler) on() string {
	census := cell.Census(slices.Collect(maps.Values(s.cells))...)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(census)) {
		for _, c := range census[name] {
			out = append(out, fmt.Sprintf("%s %s", strings.TrimPrefix(name, converge.NamesOf("p")), c.LogGUID))
		}
	}
	return strings.Join(out, ", ")
}

func (s *scheduler) want(what, on string) {
	s.t.Helper()
	if got := s.on(); got != on {
		s.t.Errorf("%s: there run %s, want %s", what, got, on)
	}
}

// TestGiveUpAnIndex: a definition that crashes for ever at index 1 is given up there, and the
// rollout goes on. A further one replaces all.
func TestGiveUpAnIndex(t *testing.T) {
	raced.Leave(t)
	bothSchedules(t, func(s *scheduler) {
		s.process("p", 3)
		s.after(5 * time.Second)
		updateV1(s.t, s.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", RolloutTimeoutMs: proto.Int64(10_000)})
		s.roll("two", "1")
		s.after(9 * time.Second)
		s.want("before the timeout", "0 two, 1 one, 2 one")
		s.after(12 * time.Second)
		s.want("after the timeout", "0 two, 1 one, 2 two")
		res, err := s.actualV1.GetActualLRPGroup(s.t.Context(), connect.NewRequest(&bbsv1.GetActualLRPGroupRequest{Name: converge.IndexName("p", 1)}))
		if g := res.Msg.GetActualLrpGroup(); err != nil || g.GetDefinitionId() != "two" || !g.GetInstance().GetGivenUp() || g.GetInstance().GetState() != "CRASHED" {
			s.t.Errorf("the one that was given up is %v, %v", g, err)
		}
		s.after(12 * time.Second)
		s.want("long after", "0 two, 1 one, 2 two")
		s.roll("three")
		s.after(12 * time.Second)
		s.runs("three", map[string]int{"p": 3})
	})
}

// TestThirdDefinition: it begins again at index 0 while the second one waits, whose instance stops.
func TestThirdDefinition(t *testing.T) {
	raced.Leave(t)
	v2Schedule(t, func(s *scheduler) {
		s.process("p", 3)
		s.after(5 * time.Second)
		updateV1(s.t, s.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", RolloutTimeoutMs: proto.Int64(3_600_000)})
		s.roll("two", "2")
		s.after(10 * time.Second)
		s.want("the second waits", "0 two, 1 two, 2 one")
		s.roll("three", "1")
		s.after(7 * time.Second)
		s.want("the third waits", "0 three, 1 two, 2 one")
		for i, want := range []string{"three", "three two", "p"} {
			res, err := s.actualV2.ListActualLRPs(s.t.Context(), connect.NewRequest(&bbsv2.ListActualLRPsRequest{Filter: fmt.Sprint("index == ", i)}))
			var have []string
			for _, l := range res.Msg.GetActualLrps() {
				have = append(have, l.GetDefinitionId())
			}
			if err != nil || strings.Join(have, " ") != want {
				s.t.Errorf("at index %d are %v, %v, want %s", i, have, err, want)
			}
		}
		s.roll("four")
		s.after(15 * time.Second)
		s.runs("four", map[string]int{"p": 3})
		if p := getV2(s.t, s.api, "p"); len(p.GetDefinitions()) != 1 || p.GetHealthyDefinitionId() != "four" || len(p.GetFormerDefinitionIds()) != 0 {
			s.t.Errorf("in the end: %v", p)
		}
	})
}

// TestNeverStarts: the old instances stay, and what restarts is what was proven.
func TestNeverStarts(t *testing.T) {
	raced.Leave(t)
	v2Schedule(t, func(s *scheduler) {
		s.process("p", 3)
		s.after(5 * time.Second)
		updateV1(s.t, s.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", DefinitionId: "three", Definition: &bbsv1.Definition{Action: &bbsv1.Action{Path: cell.FailingPath}}})
		s.after(10 * time.Second)
		s.want("it is tried", "0 one, 1 one, 2 one")
		s.crash("c1")
		s.after(cellTimeout + 5*time.Second)
		s.want("after the loss of a cell", "0 one, 1 one, 2 one")
		if err := s.cells["c3"].Evacuate(s.t.Context()); err != nil {
			s.t.Error(err)
		}
		s.after(5 * time.Second)
		s.want("after an evacuation", "0 one, 1 one, 2 one")
		if p := getV2(s.t, s.api, "p"); p.GetActiveDefinitionId() != "three" {
			s.t.Errorf("it is not tried any longer: %v", p)
		}
	})
}

// TestDeleteInARollout: the instances of both definitions stop, and no further one starts.
func TestDeleteInARollout(t *testing.T) {
	bothSchedules(t, func(s *scheduler) {
		s.process("p", 3)
		s.after(5 * time.Second)
		s.roll("two", "1")
		s.after(10 * time.Second)
		s.want("in the rollout", "0 two, 1 one, 2 one")
		deleteV1(s.t, s.api, "p")
		s.after(5 * time.Second)
		s.runs("", nil)
	})
}

// rolling makes a process with one instance of its first definition that runs, and one of the second
// that waits.
func rolling(t *testing.T, a actuals) {
	t.Helper()
	p := lrpV1("p", "cf")
	p.Instances = 1
	createV1(t, a.api, p)
	step := func(say func(context.Context) error) {
		t.Helper()
		if err := say(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	step(a.converge)
	step(func(ctx context.Context) error {
		_, err := words[1].say(ctx, a, converge.IndexName("p", 0), "g", "c")
		return err
	})
	step(a.converge)
	updateV1(t, a.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", DefinitionId: "two", Definition: &bbsv1.Definition{Rootfs: "two"}})
	step(a.converge)
	step(a.converge)
}

// TestOpenDefinition: lists have one entry for each definition at an index. A request that names
// none is about the active one, or about the instance that its cell names.
func TestOpenDefinition(t *testing.T) {
	t.Parallel()
	v1, v2 := actualsOver(t)
	for label, a := range map[string]actuals{"v1 data": v1, "v2 data": v2} {
		ctx := t.Context()
		rolling(t, a)
		name := converge.IndexName("p", 0)
		list := func() (out []string) {
			res, err := a.actualV1.ListActualLRPGroups(ctx, connect.NewRequest(&bbsv1.ListActualLRPGroupsRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range res.Msg.GetActualLrpGroups() {
				text := fmt.Sprintf("%s %q %s", strings.TrimPrefix(g.Name, "processes/p/instances/"), g.GetDefinitionId(), g.GetInstance().GetState())
				if g.GetInstance().GetRetire() {
					text += " to retire"
				}
				out = append(out, text)
			}
			return out
		}
		get := func(name, definition string) string {
			res, err := a.actualV1.GetActualLRPGroup(ctx, connect.NewRequest(&bbsv1.GetActualLRPGroupRequest{Name: name, DefinitionId: definition, ReadMask: mask("name", "definition_id")}))
			if err != nil {
				return connect.CodeOf(err).String()
			}
			return res.Msg.GetActualLrpGroup().GetName() + " " + res.Msg.GetActualLrpGroup().GetDefinitionId()
		}
		if got := list(); !slices.Equal(got, []string{`0 "" RUNNING`, `0@two "two" UNCLAIMED`}) {
			t.Errorf("%s: %q", label, got)
		}
		for _, tc := range [][3]string{
			{name, "", name + "@two two"}, {name, "two", name + "@two two"}, {name, "p", name + " "}, {name + "@p", "", name + " "}, {name + "@two", "two", name + "@two two"},
			{name, "three", "not_found"}, {name + "@two", "p", "invalid_argument"}, {name, "a/b", "invalid_argument"}, {converge.IndexName("p", 1), "", "not_found"}, {converge.IndexName("q", 0), "", "not_found"},
		} {
			if got := get(tc[0], tc[1]); got != tc[2] {
				t.Errorf("%s: %s of %q is %s, want %s", label, tc[0], tc[1], got, tc[2])
			}
		}
		// An older cell knows guid and index only: its report is about the instance that it has.
		for _, tc := range []struct {
			word word
			guid string
			want []string
		}{
			{words[0], "h", []string{`0 "" RUNNING`, `0@two "two" CLAIMED`}},
			{words[4], "g", []string{`0 "" `, `0@two "two" CLAIMED`}},
			{words[1], "h", []string{`0 "" `, `0@two "two" RUNNING`}},
			{words[6], "", []string{`0 "" `, `0@two "two" RUNNING to retire`}},
		} {
			if _, err := tc.word.say(ctx, a, name, tc.guid, "c"); err != nil {
				t.Errorf("%s: %s: %v", label, tc.word.name, err)
			}
			if got := list(); !slices.Equal(got, tc.want) {
				t.Errorf("%s: after %s: %q, want %q", label, tc.word.name, got, tc.want)
			}
		}
		// Without an instance of the active one, another one is meant.
		if _, err := words[4].say(ctx, a, name, "h", "c"); err != nil {
			t.Error(err)
		}
		deleteV1(t, a.api, "p")
		if err := a.converge(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUpdateV1WithDefinition: a client of v1 replaces the whole definition, over either data.
func TestUpdateV1WithDefinition(t *testing.T) {
	t.Parallel()
	for label, stack := range stacks(t) {
		ctx := t.Context()
		a, _ := stack(t)
		made := createV1(t, a, lrpV1("p", "cf"))
		for id, tc := range map[string]struct {
			definition *bbsv1.Definition
			code       connect.Code
			text       string
		}{
			"":    {&bbsv1.Definition{}, connect.CodeInvalidArgument, "definition_id: is missing"},
			"new": {nil, connect.CodeInvalidArgument, "definition: is missing"},
			"a/b": {&bbsv1.Definition{}, connect.CodeInvalidArgument, "definition_id: "},
			"p":   {&bbsv1.Definition{}, connect.CodeAlreadyExists, `definition "p"`},
		} {
			_, err := a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(7), DefinitionId: id, Definition: tc.definition}))
			sampletest.WantError(t, err, tc.code, tc.text)
		}
		if got := getV1(t, a, "p"); !proto.Equal(got, made) {
			t.Errorf("%s: an update that was refused made %v of %v", label, got, made)
		}
		definition := &bbsv1.Definition{Rootfs: "two", Env: []*bbsv1.EnvVar{{Name: "A", Value: "1"}}, Action: &bbsv1.Action{Path: "/x", Args: []string{"y"}}, Ports: []uint32{1}}
		made.Instances, made.DefinitionId, made.Definition, made.ModificationTag.Index = 7, proto.String("two"), definition, 1
		made.RolloutTimeoutMs, made.FallBackAfterMs = 5, 6
		got := updateV1(t, a, &bbsv1.UpdateDesiredLRPRequest{
			ProcessGuid: "p", Instances: proto.Int32(7), DefinitionId: "two", Definition: definition, RolloutTimeoutMs: proto.Int64(5), FallBackAfterMs: proto.Int64(6),
		})
		if !proto.Equal(got, made) || !proto.Equal(getV1(t, a, "p"), made) {
			t.Errorf("%s: %v, read %v, want %v", label, got, getV1(t, a, "p"), made)
		}
		for id, want := range map[string]string{"two": "two", "": "two", "three": "not_found"} {
			res, err := a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "p", DefinitionId: id, ReadMask: mask("definition.rootfs", "definition_id")}))
			if err != nil {
				if connect.CodeOf(err).String() != want {
					t.Errorf("%s: with definition %q: %v", label, id, err)
				}
				continue
			}
			if p := res.Msg.GetDesiredLrp(); p.GetDefinition().GetRootfs() != want || p.GetDefinitionId() != "two" || p.GetDomain() != "" {
				t.Errorf("%s: with definition %q it is %v", label, id, p)
			}
		}
		if label == "v2 data" {
			p := getV2(t, a, "p")
			if p.GetActiveDefinitionId() != "two" || !slices.Equal(p.GetFormerDefinitionIds(), []string{"p"}) || len(p.GetDefinitions()) != 2 {
				t.Errorf("v2 has %v", p)
			}
			res, err := a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "p", DefinitionId: "p"}))
			if err != nil {
				t.Fatal(err)
			}
			if d := res.Msg.GetDesiredLrp(); d.DefinitionId != nil || d.GetDefinition().GetRootfs() != lrpV1("p", "cf").GetDefinition().GetRootfs() {
				t.Errorf("with the former definition it is %v", d)
			}
		}
		_, err := a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", RolloutTimeoutMs: proto.Int64(-1)}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "rollout_timeout_ms: ")
	}
}
