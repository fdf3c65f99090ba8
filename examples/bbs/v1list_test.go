package bbs

import (
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

// v1Tests are further tests of TestV1.
var v1Tests = map[string]func(*testing.T, api, *sampletest.Store){
	"read masks":              v1ReadMasks,
	"limits":                  v1Limits,
	"filters":                 v1Filters,
	"filters refused":         v1FiltersRefused,
	"order":                   v1Order,
	"tokens":                  v1Tokens,
	"errors in its own words": v1Words,
	"watch":                   v1Watch,
	"watch some":              v1WatchSome,
	"watch refused":           v1WatchRefused,
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

// listV1 returns the guids of all pages.
func listV1(t testing.TB, a api, req *bbsv1.ListDesiredLRPsRequest) (guids []string) {
	t.Helper()
	for {
		res, err := a.v1.ListDesiredLRPs(context.Background(), connect.NewRequest(req))
		if err != nil {
			t.Errorf("%v: %v", req, err)
			return nil
		}
		if size := int(req.GetPageSize()); size > 0 && len(res.Msg.GetDesiredLrps()) > size {
			t.Errorf("a page of %d has %d", size, len(res.Msg.GetDesiredLrps()))
		}
		for _, p := range res.Msg.GetDesiredLrps() {
			guids = append(guids, p.GetProcessGuid())
		}
		if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
			return guids
		}
	}
}

func v1ReadMasks(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	full := createV1(t, a, lrpV1("p", "cf"))
	for _, tc := range []struct {
		paths []string
		want  *bbsv1.DesiredLRP
	}{
		{nil, full},
		{[]string{"*"}, full},
		{[]string{"domain"}, &bbsv1.DesiredLRP{Domain: full.Domain}},
		{[]string{"process_guid", "instances"}, &bbsv1.DesiredLRP{ProcessGuid: full.ProcessGuid, Instances: full.Instances}},
		{[]string{"routes.`a.b`", "annotation"}, &bbsv1.DesiredLRP{Routes: map[string]string{"a.b": ""}, Annotation: full.Annotation}},
		{[]string{"definition"}, &bbsv1.DesiredLRP{Definition: full.Definition}},
		{[]string{"definition.memory_mb", "definition.env.name"}, &bbsv1.DesiredLRP{Definition: &bbsv1.Definition{MemoryMb: full.Definition.MemoryMb, Env: []*bbsv1.EnvVar{{Name: "PORT"}}}}},
		{[]string{"modification_tag.index"}, &bbsv1.DesiredLRP{ModificationTag: &bbsv1.ModificationTag{}}},
	} {
		got, err := a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "p", ReadMask: mask(tc.paths...)}))
		if err != nil || !proto.Equal(got.Msg.GetDesiredLrp(), tc.want) {
			t.Errorf("get %v: %v %v, want %v", tc.paths, got, err, tc.want)
		}
		list, err := a.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{ReadMask: mask(tc.paths...)}))
		if err != nil || len(list.Msg.GetDesiredLrps()) != 1 || !proto.Equal(list.Msg.GetDesiredLrps()[0], tc.want) {
			t.Errorf("list %v: %v %v, want %v", tc.paths, list, err, tc.want)
		}
	}
	for _, path := range []string{"definitions", "active_definition_id", "definition.memory", "nonesuch"} {
		_, err := a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "p", ReadMask: mask(path)}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "read_mask", path)
		_, err = a.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{ReadMask: mask(path)}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "read_mask", path)
	}
}

func v1Limits(t *testing.T, a api, s *sampletest.Store) {
	for field, change := range map[string]func(*bbsv1.DesiredLRP){
		"process_guid": func(p *bbsv1.DesiredLRP) { p.ProcessGuid = strings.Repeat("g", maxName+1) },
		"annotation":   func(p *bbsv1.DesiredLRP) { p.Annotation = strings.Repeat("a", maxAnnotation+1) },
		"routes":       func(p *bbsv1.DesiredLRP) { p.Routes = map[string]string{"r": strings.Repeat("r", maxRoutes)} },
		"definition":   func(p *bbsv1.DesiredLRP) { p.Definition.Rootfs = strings.Repeat("d", maxDefinition) },
	} {
		in := lrpV1("p", "cf")
		change(in)
		_, err := a.v1.CreateDesiredLRP(context.Background(), connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: in}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, field+": ", "at most")
	}
	for field, req := range map[string]*bbsv1.UpdateDesiredLRPRequest{
		"annotation": {Annotation: proto.String(strings.Repeat("a", maxAnnotation+1))},
		"routes":     {Routes: &bbsv1.Routes{Entries: map[string]string{"r": strings.Repeat("r", maxRoutes)}}},
		"instances":  {Instances: proto.Int32(-1)},
	} {
		req.ProcessGuid = "p"
		_, err := a.v1.UpdateDesiredLRP(context.Background(), connect.NewRequest(req))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, field)
	}
	if len(s.Writes()) != 0 {
		t.Errorf("wrote %v", s.Writes())
	}
}

// seedV1 makes processes that filters and orders can tell apart.
func seedV1(t testing.TB, a api) {
	t.Helper()
	def := func(memory int32) *bbsv1.Definition { return &bbsv1.Definition{Rootfs: "r", MemoryMb: memory} }
	for _, p := range []*bbsv1.DesiredLRP{
		{ProcessGuid: "a", Domain: "cf-apps", Instances: 1, Annotation: "old one", Routes: map[string]string{"cf-router": "80", "a.b": "x"}, Definition: def(64)},
		{ProcessGuid: "b", Domain: "cf-apps", Instances: 3, Annotation: "new", Routes: map[string]string{"cf-router": "81"}, Definition: def(128)},
		{ProcessGuid: "c", Domain: "cf-tasks", Instances: 2, Annotation: "old two", Definition: def(64)},
		{ProcessGuid: "d", Domain: "tcp", Instances: 3, Routes: map[string]string{"tcp-router": "1"}, Definition: def(256)},
		{ProcessGuid: "e", Domain: "tcp", Definition: def(0)},
	} {
		createV1(t, a, p)
	}
	if _, err := a.v1.UpdateDesiredLRP(context.Background(), connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "d"})); err != nil {
		t.Fatal(err)
	}
}

// v1FilterCases hold for both versions' APIs, over either data.
var v1FilterCases = map[string]string{
	"":                                 "a b c d e",
	`domain == "cf-apps"`:              "a b",
	`domain != "cf-apps"`:              "c d e",
	`domain in ["tcp", "cf-tasks"]`:    "c d e",
	`domain.startsWith("cf-")`:         "a b c",
	`instances >= 2`:                   "b c d",
	`instances > 1 && instances < 3`:   "c",
	`instances == 0 || instances == 1`: "a e",
	`annotation.contains("o")`:         "a c",
	`annotation == ""`:                 "d e",
	`routes["cf-router"] == "81"`:      "b",
	`routes["a.b"] == "x"`:             "a",
	`"cf-router" in routes`:            "a b",
	`has(routes)`:                      "a b d",
	`process_guid == "c"`:              "c",
	`process_guid in ["a", "e", "z"]`:  "a e",
	`process_guid > "c"`:               "d e",
	`modification_tag.index == 1`:      "d",
	`modification_tag.index != 1`:      "a b c e",
	`modification_tag.epoch == ""`:     "",
	`domain == "cf-apps" && instances >= 2 && !annotation.startsWith("old")`: "b",
	`false`: "",
}

func v1Filters(t *testing.T, a api, _ *sampletest.Store) {
	seedV1(t, a)
	for filter, want := range v1FilterCases {
		for _, size := range []int32{0, 1, 2} {
			if got := strings.Join(listV1(t, a, &bbsv1.ListDesiredLRPsRequest{Filter: filter, PageSize: size}), " "); got != want {
				t.Errorf("%s in pages of %d: listed %q, want %q", filter, size, got, want)
			}
		}
	}
	if got := listV1(t, a, &bbsv1.ListDesiredLRPsRequest{Filter: `instances == 3`, Domain: "tcp", Prefix: "d"}); !slices.Equal(got, []string{"d"}) {
		t.Errorf("filter, domain and prefix at once: %v", got)
	}
}

func v1FiltersRefused(t *testing.T, a api, _ *sampletest.Store) {
	seedV1(t, a)
	for filter, want := range map[string]string{
		`active_definition_id == "x"`: "active_definition_id",
		`"x" in definitions`:          "definitions",
		`instances == "2"`:            "instances",
		`routes == "x"`:               "routes",
		`modification_tag == "x"`:     "modification_tag",
		`domain == "a`:                "column",
		`domain`:                      "domain",
		`size(routes) > 1`:            "expression",
		`nonesuch == 1`:               "nonesuch",
	} {
		_, err := a.v1.ListDesiredLRPs(context.Background(), connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{Filter: filter}))
		t.Run(filter, func(t *testing.T) { sampletest.WantError(t, err, connect.CodeInvalidArgument, "filter: ", want) })
	}
}

var v1OrderCases = map[string]string{
	"":                               "a b c d e",
	"process_guid":                   "a b c d e",
	"process_guid desc":              "e d c b a",
	"instances":                      "e a c b d",
	"instances desc, domain":         "b d c a e",
	"domain desc, process_guid desc": "e d c b a",
	"annotation, instances desc":     "d e b a c",
	"routes.cf-router desc":          "b a c d e",
	"modification_tag.index desc":    "d a b c e",
}

func v1Order(t *testing.T, a api, _ *sampletest.Store) {
	seedV1(t, a)
	for order, want := range v1OrderCases {
		for _, size := range []int32{0, 1, 2} {
			if got := strings.Join(listV1(t, a, &bbsv1.ListDesiredLRPsRequest{OrderBy: order, PageSize: size}), " "); got != want {
				t.Errorf("%s in pages of %d: %s, want %s", order, size, got, want)
			}
		}
	}
	for order, want := range map[string]string{"routes": "routes", "nonesuch": "nonesuch", "domain up": "domain up", "active_definition_id": "active_definition_id"} {
		_, err := a.v1.ListDesiredLRPs(context.Background(), connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{OrderBy: order}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "order_by: ", want)
	}
}

// v1Tokens: a token goes with the question that it was made for.
func v1Tokens(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	seedV1(t, a)
	res, err := a.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{Filter: `instances > 0`, OrderBy: "domain", PageSize: 2}))
	if err != nil {
		t.Fatal(err)
	}
	token := res.Msg.GetNextPageToken()
	for _, other := range []*bbsv1.ListDesiredLRPsRequest{
		{}, {Filter: `instances > 0`}, {OrderBy: "domain"}, {Filter: `instances > 0`, OrderBy: "domain desc"},
		{Filter: `instances > 0`, OrderBy: "domain", Prefix: "a"}, {Filter: `instances > 0`, OrderBy: "domain", Domain: "tcp"},
	} {
		other.PageToken = token
		_, err := a.v1.ListDesiredLRPs(ctx, connect.NewRequest(other))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "page_token", "another request")
	}
	_, err = a.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{PageToken: "p1"}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "page_token")
	rest, err := a.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{Filter: `instances > 0`, OrderBy: "domain", PageSize: 9, PageToken: token, ReadMask: mask("process_guid")}))
	if err != nil || len(rest.Msg.GetDesiredLrps()) != 2 {
		t.Errorf("with another size and mask: %v %v", rest, err)
	}
}

// v1Words: each server of v1 names v1's own fields in its errors.
func v1Words(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	createV1(t, a, lrpV1("p", "cf"))
	create := func(p *bbsv1.DesiredLRP) error {
		_, err := a.v1.CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: p}))
		return err
	}
	none := lrpV1("q", "cf")
	none.Definition = nil
	for want, err := range map[string]error{
		"desired_lrp: is missing": create(nil),
		"definition: is missing":  create(none),
		"domain: is missing":      create(lrpV1("q", "")),
		"p: record exists":        create(lrpV1("p", "cf")),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	_, err := a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "process_guid: is missing")
	_, err = a.v1.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: "q"}))
	sampletest.WantError(t, err, connect.CodeNotFound, "q: record not found")
	_, err = a.v1.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", ExpectedModificationTag: &bbsv1.ModificationTag{Epoch: "e"}}))
	sampletest.WantError(t, err, connect.CodeAborted, "p: its tag is ", "/0")
}
