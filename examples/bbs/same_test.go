package bbs

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/internal/base/inprocess"
)

// request is one call of the v1 API.
type request struct {
	name string // for failures
	call func(a api) (proto.Message, error)
}

var (
	sameGUIDs   = []string{"a", "a-1", "b", "", "a/b"}
	sameDomains = []string{"cf", "tcp", ""}
	sameRoutes  = []map[string]string{nil, {}, {"r": "x"}, {"r": "y", "a.b": ""}, {"": "empty"}, {"a\x00": ""}}
	samePaths   = []string{"process_guid", "domain", "instances", "routes", "routes.r", "annotation", "definition", "definition.memory_mb", "definition.env.name", "definition.ports", "definition_id", "rollout_timeout_ms", "modification_tag.index", "*", "nonesuch", "definitions"}
	sameAtoms   = []string{
		`domain == "cf"`, `domain != "tcp"`, `domain.startsWith("c")`, `domain in ["tcp", "x"]`, `instances == 0`, `instances >= 2`, `instances in [1, 3]`, `has(instances)`,
		`routes.r == "x"`, `routes["a.b"] == ""`, `has(routes.r)`, `has(routes)`, `"r" in routes`, `routes["*"] == "y"`, `annotation.contains("o")`, `annotation == ""`,
		`rollout_timeout_ms > 0`, `fall_back_after_ms == 0`, `process_guid > "a"`, `process_guid == "b"`, `process_guid.startsWith("a-")`, `modification_tag.index > 0`, `has(modification_tag)`, `modification_tag.epoch == "e"`,
		`definitions.a.memory_mb == 1`, `instances == "x"`, `domain ==`,
	}
	sameOrders = []string{"", "process_guid", "process_guid desc", "domain, instances desc", "routes.r", "annotation desc, process_guid", "modification_tag.index", "definitions", "routes", "domain domain"}
)

func drawProcess(t *rapid.T) *bbsv1.DesiredLRP {
	p := &bbsv1.DesiredLRP{
		ProcessGuid: rapid.SampledFrom(sameGUIDs).Draw(t, "guid"), Domain: rapid.SampledFrom(sameDomains).Draw(t, "domain"), Instances: rapid.Int32Range(-1, 3).Draw(t, "instances"),
		Routes: rapid.SampledFrom(sameRoutes).Draw(t, "routes"), Annotation: rapid.SampledFrom([]string{"", "old", "new"}).Draw(t, "annotation"),
	}
	if rapid.IntRange(0, 9).Draw(t, "definition") > 0 {
		p.Definition = &bbsv1.Definition{
			Rootfs: "r", MemoryMb: rapid.Int32().Draw(t, "memory"), Ports: rapid.SliceOfN(rapid.Uint32(), 0, 2).Draw(t, "ports"), Privileged: rapid.Bool().Draw(t, "privileged"),
			StartTimeoutMs: rapid.Int64().Draw(t, "timeout"),
		}
		if rapid.Bool().Draw(t, "env and action") {
			p.Definition.Env = []*bbsv1.EnvVar{{Name: "A", Value: "1"}, {}}
			p.Definition.Action = &bbsv1.Action{Args: []string{"", "x"}}
		}
	}
	p.RolloutTimeoutMs = rapid.Int64Range(-1, 2).Draw(t, "rollout timeout")
	p.FallBackAfterMs = rapid.Int64Range(-1, 2).Draw(t, "falls back after")
	if rapid.IntRange(0, 2).Draw(t, "named definition") == 0 {
		p.DefinitionId = proto.String(rapid.SampledFrom([]string{"", "a", "one", "two", "a/b"}).Draw(t, "definition id"))
	}
	if rapid.Bool().Draw(t, "tag") {
		p.ModificationTag = &bbsv1.ModificationTag{Epoch: "of the client", Index: 7}
	}
	return p
}

func drawPaths(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.SampledFrom(samePaths), 0, 3).Draw(t, "mask")
}

func drawRequest(t *rapid.T) request {
	ctx := context.Background()
	guid := rapid.SampledFrom(sameGUIDs).Draw(t, "guid")
	switch rapid.IntRange(0, 6).Draw(t, "method") {
	case 0, 1:
		req := &bbsv1.CreateDesiredLRPRequest{DesiredLrp: drawProcess(t)}
		return request{fmt.Sprint("create ", req), func(a api) (proto.Message, error) {
			return answer(a.v1.CreateDesiredLRP(ctx, connect.NewRequest(req)))
		}}
	case 2:
		p := drawProcess(t)
		req := &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: guid}
		if rapid.Bool().Draw(t, "set instances") {
			req.Instances = proto.Int32(p.Instances)
		}
		if rapid.Bool().Draw(t, "set routes") {
			req.Routes = &bbsv1.Routes{Entries: p.Routes}
		}
		if rapid.Bool().Draw(t, "set annotation") {
			req.Annotation = proto.String(p.Annotation)
		}
		if rapid.Bool().Draw(t, "set timeouts") {
			req.RolloutTimeoutMs, req.FallBackAfterMs = proto.Int64(p.RolloutTimeoutMs), proto.Int64(p.FallBackAfterMs)
		}
		// v1's data know of no former definition, so only an id that is new is refused by neither.
		if rapid.Bool().Draw(t, "set definition") {
			req.Definition = p.Definition
			if rapid.IntRange(0, 5).Draw(t, "with id") > 0 {
				req.DefinitionId = fmt.Sprint("new", rapid.IntRange(0, 1<<30).Draw(t, "new id"))
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "expect a tag") == 0 {
			req.ExpectedModificationTag = &bbsv1.ModificationTag{Epoch: "another"}
		}
		return request{fmt.Sprint("update ", req), func(a api) (proto.Message, error) {
			return answer(a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(req)))
		}}
	case 3:
		return request{"delete " + guid, func(a api) (proto.Message, error) {
			return answer(a.v1.DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: guid})))
		}}
	case 4:
		req := &bbsv1.GetDesiredLRPRequest{ProcessGuid: guid, ReadMask: mask(drawPaths(t)...), DefinitionId: rapid.SampledFrom([]string{"", "", "nonesuch"}).Draw(t, "of definition")}
		return request{fmt.Sprint("get ", req), func(a api) (proto.Message, error) {
			return answer(a.v1.GetDesiredLRP(ctx, connect.NewRequest(req)))
		}}
	default:
		req := &bbsv1.ListDesiredLRPsRequest{
			Domain: rapid.SampledFrom([]string{"", "", "cf"}).Draw(t, "of domain"), Prefix: rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "prefix"), Filter: sampletest.DrawFilter(t, sameAtoms, 2),
			OrderBy: rapid.SampledFrom(sameOrders).Draw(t, "order"), PageSize: rapid.Int32Range(-1, 3).Draw(t, "size"), ReadMask: mask(drawPaths(t)...),
		}
		return request{fmt.Sprint("list ", req), func(a api) (proto.Message, error) { return allPages(a, proto.CloneOf(req)) }}
	}
}

// allPages is a list of all pages, with an empty process between any two of them.
func allPages(a api, req *bbsv1.ListDesiredLRPsRequest) (proto.Message, error) {
	out := &bbsv1.ListDesiredLRPsResponse{}
	for {
		page, err := answer(a.v1.ListDesiredLRPs(context.Background(), connect.NewRequest(req)))
		if err != nil {
			return nil, err
		}
		out.DesiredLrps = append(out.DesiredLrps, page.(*bbsv1.ListDesiredLRPsResponse).GetDesiredLrps()...)
		if req.PageToken = page.(*bbsv1.ListDesiredLRPsResponse).GetNextPageToken(); req.PageToken == "" {
			return out, nil
		}
		out.DesiredLrps = append(out.DesiredLrps, &bbsv1.DesiredLRP{})
	}
}

// answer is what a response says, but for the epochs, which are drawn at random.
func answer[T any](res *connect.Response[T], err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	m := any(res.Msg).(proto.Message)
	var shown []*bbsv1.DesiredLRP
	switch m := m.(type) {
	case *bbsv1.ListDesiredLRPsResponse:
		shown = m.GetDesiredLrps()
	case interface{ GetDesiredLrp() *bbsv1.DesiredLRP }:
		shown = append(shown, m.GetDesiredLrp())
	}
	for _, p := range shown {
		if t := p.GetModificationTag(); t != nil {
			t.Epoch = ""
		}
	}
	return m, nil
}

// TestV1IsTheSameOverBothData sends what is drawn to v1 over its own data and over v2
// data: the answers are the same, and what one refuses the other refuses. Filters and
// orders on the definition, in which they differ, have a test of their own.
func TestV1IsTheSameOverBothData(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		own, other := direct(StackV1(sampletest.New(t, KindDesiredLRPs), nil)), direct(StackV2(sampletest.New(t, KindDeployments, KindDefinitions)))
		for range rapid.IntRange(1, 15).Draw(rt, "requests") {
			req := drawRequest(rt)
			want, wantErr := req.call(own)
			got, err := req.call(other)
			if (err == nil) != (wantErr == nil) || err != nil && connect.CodeOf(err) != connect.CodeOf(wantErr) {
				rt.Fatalf("%s: error %v over v2 data, %v over v1 data", req.name, err, wantErr)
			}
			if err == nil && !proto.Equal(got, want) {
				rt.Fatalf("%s:\n%v over v2 data\n%v over v1 data", req.name, got, want)
			}
		}
	})
}

// direct calls a stack without a connection.
func direct(h http.Handler) api {
	return api{v1: bbsv1connect.NewDesiredLRPServiceClient(inprocess.Client(h), "http://inprocess")}
}
