package bbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/raced"
)

// actuals are the v1 API over data of one version, and the reconciler of that one, which does
// its work once when a test asks for it.
type actuals struct {
	api
	converge func(context.Context) error
}

func actualsOver(t testing.TB) (v1, v2 actuals) {
	t.Helper()
	s1, s2 := sampletest.New(t, kindsV1...), sampletest.New(t, kindsV2...)
	return actuals{apiOf(inprocess.Client(StackV1(s1, s2)), "http://bbs"), newReconciler(newInstancesV1(s1), 0).all},
		actuals{apiOf(inprocess.Client(StackV2(s2)), "http://bbs"), newReconciler(newInstancesV2(s2), 0).all}
}

// word is what a client of v1 says of an instance.
type word struct {
	name string
	say  func(ctx context.Context, a actuals, name, guid, cell string) (*connect.Response[bbsv1.ActualLRPGroup], error)
}

var words = []word{
	{"claim", func(ctx context.Context, a actuals, name, guid, cell string) (*connect.Response[bbsv1.ActualLRPGroup], error) {
		return a.actualV1.ClaimActualLRP(ctx, connect.NewRequest(&bbsv1.ClaimActualLRPRequest{Name: name, InstanceGuid: guid, CellId: cell}))
	}},
	{"start", func(ctx context.Context, a actuals, name, guid, cell string) (*connect.Response[bbsv1.ActualLRPGroup], error) {
		return a.actualV1.StartActualLRP(ctx, connect.NewRequest(&bbsv1.StartActualLRPRequest{Name: name, InstanceGuid: guid, CellId: cell}))
	}},
	{"crash", func(ctx context.Context, a actuals, name, guid, cell string) (*connect.Response[bbsv1.ActualLRPGroup], error) {
		return a.actualV1.CrashActualLRP(ctx, connect.NewRequest(&bbsv1.CrashActualLRPRequest{Name: name, InstanceGuid: guid, CellId: cell, CrashReason: strings.Repeat("é", 2000)}))
	}},
	{"fail", func(ctx context.Context, a actuals, name, _, _ string) (*connect.Response[bbsv1.ActualLRPGroup], error) {
		return a.actualV1.FailActualLRP(ctx, connect.NewRequest(&bbsv1.FailActualLRPRequest{Name: name, PlacementError: "no room"}))
	}},
	{"remove", func(ctx context.Context, a actuals, name, guid, cell string) (*connect.Response[bbsv1.ActualLRPGroup], error) {
		return a.actualV1.RemoveActualLRP(ctx, connect.NewRequest(&bbsv1.RemoveActualLRPRequest{Name: name, InstanceGuid: guid, CellId: cell}))
	}},
	{"evacuate", func(ctx context.Context, a actuals, name, guid, cell string) (*connect.Response[bbsv1.ActualLRPGroup], error) {
		return a.actualV1.EvacuateActualLRP(ctx, connect.NewRequest(&bbsv1.EvacuateActualLRPRequest{Name: name, InstanceGuid: guid, CellId: cell}))
	}},
	{"retire", func(ctx context.Context, a actuals, name, _, _ string) (*connect.Response[bbsv1.ActualLRPGroup], error) {
		return a.actualV1.RetireActualLRP(ctx, connect.NewRequest(&bbsv1.RetireActualLRPRequest{Name: name}))
	}},
}

// plain is a group as it is told, without what is drawn or a time.
func plain(g *bbsv1.ActualLRPGroup) string {
	if g == nil {
		return "none"
	}
	g = proto.CloneOf(g)
	g.Revision = 0
	for _, i := range []*bbsv1.ActualLRP{g.Instance, g.Evacuating} {
		if i != nil {
			i.Placement, i.Epoch, i.WantedMs, i.SinceMs = "", "", 0, 0
		}
	}
	return string(must(proto.MarshalOptions{Deterministic: true}.Marshal(g)))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// told is the outcome of a call, as a client can tell it.
func told(text string, err error) string {
	if coded := new(connect.Error); errors.As(err, &coded) {
		return fmt.Sprintf("%s: %s", coded.Code(), coded.Message())
	}
	return text
}

// TestSameInstances: whatever clients of v1 say of instances, and whenever the reconciler works
// in between, they are told the same over either version's data.
func TestSameInstances(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		v1, v2 := actualsOver(t)
		both := func(what string, ask func(a actuals) string) {
			a, b := ask(v1), ask(v2)
			if a != b {
				rt.Fatalf("%s: over v1 data %q, over v2 data %q", what, a, b)
			}
		}
		createV1(t, v1.api, lrpV1("p", "cf"))
		createV1(t, v2.api, lrpV1("p", "cf"))
		rt.Repeat(map[string]func(*rapid.T){
			"converge": func(*rapid.T) {
				both("converge", func(a actuals) string { return told("done", a.converge(ctx)) })
			},
			"scale": func(rt *rapid.T) {
				n := rapid.Int32Range(0, 2).Draw(rt, "instances")
				for _, a := range []actuals{v1, v2} {
					updateV1(t, a.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(n)})
				}
			},
			"say": func(rt *rapid.T) {
				w := rapid.SampledFrom(words).Draw(rt, "word")
				name := rapid.SampledFrom([]string{converge.IndexName("p", 0), converge.IndexName("p", 0), converge.IndexName("p", 1), converge.IndexName("q", 0), "p/0"}).Draw(rt, "name")
				guid, cell := rapid.SampledFrom([]string{"g", "h", ""}).Draw(rt, "guid"), rapid.SampledFrom([]string{"c", "c", "d", "a/b"}).Draw(rt, "cell")
				both(w.name+" "+name, func(a actuals) string {
					res, err := w.say(ctx, a, name, guid, cell)
					if err != nil {
						return told("", err)
					}
					if why := res.Msg.GetInstance(); w.name == "fail" && why.GetPlacementError() != "no room" || why.GetState() == string(converge.Crashed) && !strings.HasPrefix(why.GetCrashReason(), "é") {
						rt.Fatalf("%s: why is not told: %v", w.name, why)
					}
					return plain(res.Msg)
				})
			},
			"list": func(rt *rapid.T) {
				req := &bbsv1.ListActualLRPGroupsRequest{
					Parent: rapid.SampledFrom([]string{"", "processes/p", "processes/-", "processes/q"}).Draw(rt, "parent"), PageSize: rapid.Int32Range(0, 2).Draw(rt, "size"),
					Filter:  rapid.SampledFrom([]string{"", `instance.cell_id == "c"`, `instance.state == "UNCLAIMED" || evacuating.cell_id == "c"`, `instance.definition_id == "p"`, `index > 0`}).Draw(rt, "filter"),
					OrderBy: rapid.SampledFrom([]string{"", "index desc", "instance.state"}).Draw(rt, "order"),
				}
				both("list", func(a actuals) string {
					res, err := a.actualV1.ListActualLRPGroups(ctx, connect.NewRequest(req))
					if err != nil {
						return told("", err)
					}
					out := fmt.Sprint(res.Msg.GetNextPageToken() != "")
					for _, g := range res.Msg.GetActualLrpGroups() {
						out += "\n" + plain(g)
					}
					return out
				})
			},
		})
	})
}

// TestWordsAfterWords: of an instance that waits for a cell every word is said, and after it every
// word by the same cell and by another. What is drawn might not come to all that can be answered
// and refused.
func TestWordsAfterWords(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	type spoken struct{ name, outcome string }
	said := map[spoken]bool{}
	for _, first := range words {
		for _, second := range words {
			for _, cell := range []string{"c", "d"} {
				v1, v2 := actualsOver(t)
				outcomes := map[string][]string{}
				for version, a := range map[string]actuals{"v1": v1, "v2": v2} {
					createV1(t, a.api, lrpV1("p", "cf"))
					if err := a.converge(t.Context()); err != nil {
						t.Fatal(err)
					}
					for _, s := range []struct {
						word
						cell string
					}{{first, "c"}, {second, cell}} {
						res, err := s.say(t.Context(), a, converge.IndexName("p", 0), "guid of "+s.cell, s.cell)
						switch {
						case err == nil:
							said[spoken{s.name, "answered"}] = true
							outcomes[version] = append(outcomes[version], plain(res.Msg))
						case connect.CodeOf(err) == connect.CodeFailedPrecondition:
							said[spoken{s.name, "refused"}] = true
							outcomes[version] = append(outcomes[version], told("", err))
						default:
							t.Errorf("%s and %s of %s, over data of %s: %v", first.name, second.name, cell, version, err)
						}
					}
				}
				if !slices.Equal(outcomes["v1"], outcomes["v2"]) {
					t.Errorf("%s and %s of %s: over v1 data %q, over v2 data %q", first.name, second.name, cell, outcomes["v1"], outcomes["v2"])
				}
			}
		}
	}
	for _, w := range words {
		if !said[spoken{w.name, "answered"}] {
			t.Errorf("%s was never answered", w.name)
		}
		if w.name != "remove" && w.name != "retire" && !said[spoken{w.name, "refused"}] {
			t.Errorf("%s was never refused", w.name)
		}
	}
}

// TestSchedulingInfos: over either data they are the same, page by page.
func TestSchedulingInfos(t *testing.T) {
	t.Parallel()
	v1, v2 := actualsOver(t)
	for name, a := range map[string]actuals{"v1 data": v1, "v2 data": v2} {
		seedV1(t, a.api)
		var got []string
		req := &bbsv1.ListDesiredLRPSchedulingInfosRequest{PageSize: 2, Filter: `instances > 0`, OrderBy: "instances desc"}
		for {
			res, err := a.v1.ListDesiredLRPSchedulingInfos(t.Context(), connect.NewRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range res.Msg.GetDesiredLrpSchedulingInfos() {
				if i.GetModificationTag().GetEpoch() == "" {
					t.Errorf("%s: %v", name, i)
				}
				got = append(got, fmt.Sprintf("%s %s %d of %d MB on %s", i.ProcessGuid, i.Domain, i.Instances, i.MemoryMb, i.Rootfs))
			}
			if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		want := []string{"b cf-apps 3 of 128 MB on r", "d tcp 3 of 256 MB on r", "c cf-tasks 2 of 64 MB on r", "a cf-apps 1 of 64 MB on r"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestWatchInstances: a watch of v1 shows what becomes of an instance, over either data.
func TestWatchInstances(t *testing.T) {
	t.Parallel()
	v1, v2 := actualsOver(t)
	for name, a := range map[string]actuals{"v1 data": v1, "v2 data": v2} {
		p := lrpV1("p", "cf")
		p.Instances = 1
		createV1(t, a.api, p)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := a.actualV1.WatchActualLRPGroups(ctx, connect.NewRequest(&bbsv1.WatchActualLRPGroupsRequest{Parent: "processes/p"}))
		if err != nil {
			t.Fatal(err)
		}
		next := func() string {
			if !s.Receive() {
				return fmt.Sprint("ended: ", s.Err())
			}
			m := s.Msg()
			return fmt.Sprintf("%s %s %s", strings.TrimPrefix(m.GetEvent().String(), "EVENT_"), m.GetName(), m.GetActualLrpGroup().GetInstance().GetState())
		}
		want := func(texts ...string) {
			t.Helper()
			for _, text := range texts {
				if got := next(); got != text {
					t.Errorf("%s: watched %q, want %q", name, got, text)
				}
			}
		}
		want("CAUGHT_UP  ")
		if err := a.converge(ctx); err != nil {
			t.Fatal(err)
		}
		want("PUT processes/p/instances/0 UNCLAIMED")
		if _, err := words[1].say(ctx, a, converge.IndexName("p", 0), "g", "c"); err != nil {
			t.Fatal(err)
		}
		want("PUT processes/p/instances/0 RUNNING")
		deleteV1(t, a.api, "p")
		if err := a.converge(ctx); err != nil { // its cell is asked to stop it
			t.Fatal(err)
		}
		want("PUT processes/p/instances/0 RUNNING")
		if _, err := words[4].say(ctx, a, converge.IndexName("p", 0), "g", "c"); err != nil {
			t.Fatal(err)
		}
		want("PUT processes/p/instances/0 ")
		if err := a.converge(ctx); err != nil {
			t.Fatal(err)
		}
		want("DELETE processes/p/instances/0 ")
		cancel()
		_ = s.Close() // it has ended
	}
}

// TestUpdateWithDefinition: a definition comes with an id of its own, or not at all, and nothing
// of an update that is refused is done.
func TestUpdateWithDefinition(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	before := createV2(t, a, lrpV2("p"))
	for id, tc := range map[string]struct {
		definition *bbsv2.Definition
		code       connect.Code
		text       string
	}{
		"":    {&bbsv2.Definition{}, connect.CodeInvalidArgument, "definition_id: is missing"},
		"new": {nil, connect.CodeInvalidArgument, "definition: is missing"},
		"a/b": {&bbsv2.Definition{}, connect.CodeInvalidArgument, "definition_id: "},
		"one": {&bbsv2.Definition{}, connect.CodeAlreadyExists, `definition "one"`},
	} {
		_, err := a.v2.UpdateLRPDeployment(t.Context(), connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p", Instances: proto.Int32(7), DefinitionId: id, Definition: tc.definition}))
		sampletest.WantError(t, err, tc.code, tc.text)
	}
	if got := getV2(t, a, "p"); !proto.Equal(got, before) {
		t.Errorf("%v, want %v", got, before)
	}
}
