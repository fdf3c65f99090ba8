package bbs

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/sampletest"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
)

func listV2(t testing.TB, a api, req *bbsv2.ListLRPDeploymentsRequest) (guids []string) {
	t.Helper()
	for {
		res, err := a.v2.ListLRPDeployments(context.Background(), connect.NewRequest(req))
		if err != nil {
			t.Errorf("%v: %v", req, err)
			return nil
		}
		for _, p := range res.Msg.GetLrpDeployments() {
			guids = append(guids, p.GetProcessGuid())
		}
		if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
			return guids
		}
	}
}

// seedV2 adds to the processes of seedV1 what v1 cannot make.
func seedV2(t testing.TB, a api) {
	t.Helper()
	ctx := context.Background()
	seedV1(t, a)
	for _, add := range []*bbsv2.AddDefinitionRequest{
		{ProcessGuid: "a", DefinitionId: "next", Definition: &bbsv2.Definition{MemoryMb: 512, Env: []*bbsv2.EnvVar{{Name: "A", Value: "1"}}, Ports: []uint32{80}}},
		{ProcessGuid: "b", DefinitionId: "next", Definition: &bbsv2.Definition{MemoryMb: 32, Privileged: true}},
	} {
		if _, err := a.v2.AddDefinition(ctx, connect.NewRequest(add)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "b", DefinitionId: "next"})); err != nil {
		t.Fatal(err)
	}
	for _, guid := range []string{"a", "b", "d", "e"} {
		if _, err := a.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: guid, HealthyDefinitionId: proto.String(guid)})); err != nil {
			t.Fatal(err)
		}
	}
}

func TestV2Filters(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	seedV2(t, a)
	for filter, want := range map[string]string{
		`active_definition_id == "next"`:                              "b",
		`active_definition_id in ["c", "next"]`:                       "b c",
		`healthy_definition_id == ""`:                                 "c",
		`healthy_definition_id != "" && active_definition_id > "c"`:   "b d e",
		`"next" in definitions`:                                       "a b",
		`has(definitions.next)`:                                       "a b",
		`!has(definitions.next) && domain == "tcp"`:                   "d e",
		`definitions.next.memory_mb >= 512`:                           "a",
		`definitions["next"].privileged`:                              "b",
		`definitions["*"].memory_mb == 64`:                            "a c",
		`definitions.next.env.name == "A"`:                            "a",
		`definitions.next.ports.contains(80)`:                         "a",
		`definitions.next.memory_mb < 100 || instances == 0`:          "b e",
		`!(definitions.next.memory_mb < 100 || instances == 0)`:       "a c d",
		`has(definitions)`:                                            "a b c d e",
		`domain.startsWith("cf") && definitions.c.memory_mb == 64`:    "c",
		`definitions.nonesuch.memory_mb == 0`:                         "",
		`domain == "cf-apps" && false && definitions.a.memory_mb > 0`: "",
	} {
		for _, size := range []int32{0, 1} {
			if got := strings.Join(listV2(t, a, &bbsv2.ListLRPDeploymentsRequest{Filter: filter, PageSize: size}), " "); got != want {
				t.Errorf("%s in pages of %d: listed %q, want %q", filter, size, got, want)
			}
		}
	}
	// What a filter asks for need not be in the mask.
	res, err := a.v2.ListLRPDeployments(context.Background(), connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{Filter: `definitions.next.privileged`, ReadMask: mask("domain")}))
	if err != nil || len(res.Msg.GetLrpDeployments()) != 1 || !proto.Equal(res.Msg.GetLrpDeployments()[0], &bbsv2.LRPDeployment{Domain: "cf-apps"}) {
		t.Errorf("filtered by definitions without showing them: %v %v", res, err)
	}
	for filter, want := range v1FilterCases {
		if strings.Contains(filter, "modification_tag.index") {
			continue // seedV2 changes more
		}
		if got := strings.Join(listV2(t, a, &bbsv2.ListLRPDeploymentsRequest{Filter: filter}), " "); got != want {
			t.Errorf("%s: listed %q, want %q", filter, got, want)
		}
	}
	for filter, want := range map[string]string{
		`definition.memory_mb > 1`:           "no field definition",
		`definitions.next == "x"`:            "definitions.next",
		`definitions == "x"`:                 "definitions",
		`definitions.next.memory_mb == "64"`: "definitions.next.memory_mb",
		`definitions.next.memory > 64`:       "definitions.next.memory",
	} {
		_, err := a.v2.ListLRPDeployments(context.Background(), connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{Filter: filter}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "filter: ", want)
	}
}

func TestV2Order(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	seedV2(t, a)
	for order, want := range map[string]string{
		"":                                "a b c d e",
		"active_definition_id desc":       "b e d c a",
		"healthy_definition_id":           "c a b d e",
		"definitions.next.memory_mb desc": "a b c d e",
		"definitions.next.memory_mb, domain desc": "d e c b a",
		"instances, modification_tag.index desc":  "e a c b d",
	} {
		for _, size := range []int32{0, 2} {
			if got := strings.Join(listV2(t, a, &bbsv2.ListLRPDeploymentsRequest{OrderBy: order, PageSize: size}), " "); got != want {
				t.Errorf("%s in pages of %d: %s, want %s", order, size, got, want)
			}
		}
	}
	_, err := a.v2.ListLRPDeployments(context.Background(), connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{OrderBy: "definitions"}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "order_by: ", "definitions")
}

func TestV2ReadMasks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := v2API(t)
	full := createV2(t, a, lrpV2("p"))
	one, two := full.Definitions["one"], full.Definitions["two"]
	for _, tc := range []struct {
		paths []string
		heads bool // definitions need not be read
		want  *bbsv2.LRPDeployment
	}{
		{nil, false, full},
		{[]string{"*"}, false, full},
		{[]string{"domain", "active_definition_id"}, true, &bbsv2.LRPDeployment{Domain: full.Domain, ActiveDefinitionId: "two"}},
		{[]string{"routes", "modification_tag"}, true, &bbsv2.LRPDeployment{Routes: full.Routes, ModificationTag: full.ModificationTag}},
		{[]string{"definitions"}, false, &bbsv2.LRPDeployment{Definitions: full.Definitions}},
		{[]string{"definitions.one"}, false, &bbsv2.LRPDeployment{Definitions: map[string]*bbsv2.Definition{"one": one}}},
		{[]string{"definitions.*.memory_mb"}, false, &bbsv2.LRPDeployment{Definitions: map[string]*bbsv2.Definition{"one": {MemoryMb: one.MemoryMb}, "two": {MemoryMb: two.MemoryMb}}}},
		{[]string{"definitions.two.action.path"}, false, &bbsv2.LRPDeployment{Definitions: map[string]*bbsv2.Definition{"two": {Action: &bbsv2.Action{Path: two.Action.Path}}}}},
	} {
		before := s.Reads(KindDefinitions)
		got, err := a.v2.GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: "p", ReadMask: mask(tc.paths...)}))
		if err != nil || !proto.Equal(got.Msg.GetLrpDeployment(), tc.want) {
			t.Errorf("get %v: %v %v, want %v", tc.paths, got, err, tc.want)
		}
		list, err := a.v2.ListLRPDeployments(ctx, connect.NewRequest(&bbsv2.ListLRPDeploymentsRequest{ReadMask: mask(tc.paths...)}))
		if err != nil || len(list.Msg.GetLrpDeployments()) != 1 || !proto.Equal(list.Msg.GetLrpDeployments()[0], tc.want) {
			t.Errorf("list %v: %v %v, want %v", tc.paths, list, err, tc.want)
		}
		if read := s.Reads(KindDefinitions) > before; read == tc.heads {
			t.Errorf("%v: definitions were read: %t", tc.paths, read)
		}
	}
	for _, path := range []string{"definition", "definitions.one.memory", "nonesuch"} {
		_, err := a.v2.GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: "p", ReadMask: mask(path)}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "read_mask: ", path)
	}
}

// TestV2ListReadsOnlyWhatItNeeds: definitions of processes that the rest of a filter rules
// out are not read.
func TestV2ListReadsOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	a, s := v2API(t)
	seedV2(t, a)
	for want, req := range map[int]*bbsv2.ListLRPDeploymentsRequest{
		0: {Domain: "none"},
		1: {Filter: `process_guid == "c"`},
		2: {Filter: `domain == "cf-apps" && definitions["*"].memory_mb > 100`},
		5: {Filter: `domain == "cf-apps" || definitions["*"].memory_mb > 100`},
	} {
		before := s.Reads(KindDefinitions)
		listV2(t, a, req)
		if got := s.Reads(KindDefinitions) - before; got != want {
			t.Errorf("%v: definitions of %d processes were read, want %d", req, got, want)
		}
	}
}

func TestV2Limits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := v2API(t)
	createV2(t, a, lrpV2("p"))
	before := len(s.Writes())
	large := &bbsv2.Definition{Rootfs: strings.Repeat("d", maxDefinition)}
	for field, change := range map[string]func(*bbsv2.LRPDeployment){
		"annotation":             func(p *bbsv2.LRPDeployment) { p.Annotation = strings.Repeat("a", maxAnnotation+1) },
		"routes":                 func(p *bbsv2.LRPDeployment) { p.Routes["r"] = strings.Repeat("r", maxRoutes) },
		"definitions.one":        func(p *bbsv2.LRPDeployment) { p.Definitions["one"] = large },
		"definitions: an id has": func(p *bbsv2.LRPDeployment) { p.Definitions[strings.Repeat("i", maxName+1)] = large },
	} {
		in := lrpV2("q")
		change(in)
		_, err := a.v2.CreateLRPDeployment(ctx, connect.NewRequest(&bbsv2.CreateLRPDeploymentRequest{LrpDeployment: in}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, field, "at most")
	}
	_, err := a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "x", Definition: large}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "definition: ", "at most")
	_, err = a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "x"}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "definition: is missing")
	_, err = a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "x/y", Definition: &bbsv2.Definition{}}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "definition_id: ")
	if len(s.Writes()) != before {
		t.Error("something was written")
	}
	many := lrpV2("many")
	for i := range maxDefinitions - len(many.Definitions) {
		many.Definitions[strings.Repeat("m", i+1)] = &bbsv2.Definition{}
	}
	createV2(t, a, many)
	_, err = a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "many", DefinitionId: "x", Definition: &bbsv2.Definition{}}))
	sampletest.WantError(t, err, connect.CodeResourceExhausted, "100 definitions")
}
