package apiversion_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/internal/base/inprocess"
)

// partLens is what became of a part from v1 to v2: its weight is in milligrams.
const partLens = `
operations:
  - rename: {from: guid, to: id}
  - compute: {from: [weight_g], to: [weight_mg], up: {weight_mg: long(weight_g * 1000)}, down: {weight_g: weight_mg / 1000}}
  - add: {field: maker, default: ""}
`

func parts(t *testing.T) apiversion.Config {
	file := prototest.File(t, "parts.proto")
	find := func(name string) protoreflect.MessageDescriptor {
		return file.Messages().ByName(protoreflect.Name(name))
	}
	part := lensResource(t, apiversion.Resource{Old: find("PartV1"), New: find("PartV2"), OldName: "guid", NewName: "id"}, partLens)
	bin := &apiversion.Resource{
		Old: find("BinV1"), New: find("BinV2"), OldName: "guid", NewName: "id", SameNames: true, UpMapping: part.UpMapping, DownMapping: part.DownMapping,
		Up: func(msg, _ proto.Message) (proto.Message, error) { return nil, errors.New("not needed") },
		Down: func(msg, _ proto.Message) (proto.Message, error) {
			out := dynamicpb.NewMessage(find("BinV1"))
			put(out, "guid", get(msg.ProtoReflect(), "id").String())
			return out, nil
		},
	}
	return apiversion.Config{
		Old: file.Services().ByName("PartsV1"), New: file.Services().ByName("PartsV2"), Resources: []*apiversion.Resource{part, bin},
		Methods: []apiversion.Method{
			{Old: "AddPart", New: "CreatePart", Unset: []string{"note"}},
			{Old: "FetchPart", New: "GetPart", ResponseFields: map[string]string{"note": "remark"}},
			{Old: "ReplacePart", New: "ReplacePart", Unset: []string{"note"}},
			{Old: "ListParts", New: "ListParts", RequestFields: map[string]string{"starting": "prefix"}, OpaqueTokens: true, Unset: []string{"total"}},
			{Old: "ListBins", New: "ListBins", RequestFields: map[string]string{"starting": "prefix"}},
		},
	}
}

// partsV2 answers each procedure with what the test gives, and keeps the last request.
func partsV2(s protoreflect.ServiceDescriptor, answers map[string]*message, requests map[string]*message) http.Handler {
	mux := http.NewServeMux()
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		p := apiversion.Procedure(m)
		mux.Handle(p, connect.NewUnaryHandler(p, func(_ context.Context, req *connect.Request[message]) (*connect.Response[message], error) {
			requests[string(m.Name())] = req.Msg
			return connect.NewResponse(answers[string(m.Name())]), nil
		}, connect.WithRequestInitializer(func(_ connect.Spec, v any) error {
			*v.(*message) = *dynamicpb.NewMessage(m.Input())
			return nil
		})))
	}
	return mux
}

func TestOlderStyle(t *testing.T) {
	t.Parallel()
	cfg := parts(t)
	table, err := apiversion.NewTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := func(method string) protoreflect.MessageDescriptor {
		return cfg.New.Methods().ByName(protoreflect.Name(method)).Output()
	}
	answers := map[string]*message{
		"CreatePart":  text(t, out("CreatePart"), `id: "p" weight_mg: 5000 maker: "acme"`),
		"ReplacePart": text(t, out("ReplacePart"), `id: "p"`),
		"GetPart":     text(t, out("GetPart"), `found { id: "p" weight_mg: 5000 maker: "acme" } remark: "r"`),
		"ListParts":   text(t, out("ListParts"), `parts { id: "p" weight_mg: 5000 } parts { id: "a" } next_page_token: "17"`),
		"ListBins":    text(t, out("ListBins"), `bins { id: "b" }`),
	}
	requests := map[string]*message{}
	c := serve(t, cfg.Old, apiversion.NewHandler(table, partsV2(cfg.New, answers, requests), apiversion.Options{}))
	for _, tc := range []struct{ method, req, served, translated, want string }{
		{"AddPart", `part { guid: "p" weight_g: 5 }`, "CreatePart", `part { id: "p" weight_mg: 5000 }`, `part { guid: "p" weight_g: 5 }`},
		{"FetchPart", `guid: "p"`, "GetPart", `id: "p"`, `part { guid: "p" weight_g: 5 } note: "r"`},
		// There is no mask: what v1 does not know is taken from what exists.
		{"ReplacePart", `part { guid: "p" weight_g: 6 }`, "ReplacePart", `part { id: "p" weight_mg: 6000 maker: "acme" }`, `part { guid: "p" }`},
		{"ListParts", `starting: "x" page_size: 3 page_token: "16"`, "ListParts", `prefix: "x" page_size: 3 page_token: "16"`, `parts { guid: "p" weight_g: 5 } parts { guid: "a" } next_page_token: "17"`},
		{"ListBins", `starting: "x"`, "ListBins", `prefix: "x"`, `bins { guid: "b" }`},
	} {
		got := c.do(tc.method, tc.req)
		if want := text(t, got.Descriptor(), tc.want); !proto.Equal(got, want) {
			t.Errorf("%s: got %v", tc.method, got)
		}
		req := requests[tc.served]
		if want := text(t, req.Descriptor(), tc.translated); !proto.Equal(req, want) {
			t.Errorf("%s was served by %v", tc.method, req)
		}
	}
	for req, want := range map[string]string{`page_size: -1`: "page_size: is never negative", `page_size: 5000000000`: "page_size: the number does not fit"} {
		_, err := c.try(t.Context(), "ListParts", req)
		wantError(t, err, connect.CodeInvalidArgument, want)
	}
	// What v1 cannot show is an error that names the field and the reason.
	answers["GetPart"] = text(t, out("GetPart"), `found { id: "p" weight_mg: 5001 }`)
	_, err = c.try(t.Context(), "FetchPart", `guid: "p"`)
	wantError(t, err, connect.CodeDataLoss, `p: weight_mg: is {"$numberLong":"5001"} (long)`)
}

func TestTableWithTwoResources(t *testing.T) {
	t.Parallel()
	cfg := parts(t)
	cfg.Methods[4].Resource, cfg.Methods[4].Unset = "BinV1", nil
	if _, err := apiversion.NewTable(cfg); err != nil {
		t.Error(err)
	}
	cfg.Methods[2].Unset = nil
	if _, err := apiversion.NewTable(cfg); err == nil || !strings.Contains(err.Error(), "method ReplacePart: note of its response has no counterpart") {
		t.Errorf("error is %v", err)
	}
}

// TestConvertersThatPanic end neither the making of a table, which asks them for what an
// empty message shows, nor more than the request.
func TestConvertersThatPanic(t *testing.T) {
	t.Parallel()
	cfg := parts(t)
	cfg.Resources[0].Down = func(msg, _ proto.Message) (proto.Message, error) {
		panic("no weight in " + string(msg.ProtoReflect().Descriptor().Name()))
	}
	table, err := apiversion.NewTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]*message{"CreatePart": text(t, cfg.New.Methods().ByName("CreatePart").Output(), `id: "p"`)}
	var seen atomic.Pointer[inprocess.PanicError]
	c := serve(t, cfg.Old, apiversion.NewHandler(table, partsV2(cfg.New, answers, map[string]*message{}), apiversion.Options{
		Observers: []apiversion.Observer{observing(func(_ context.Context, e apiversion.Event) error {
			if p := new(inprocess.PanicError); e.What == apiversion.Request && errors.As(e.Err, &p) {
				seen.Store(p)
			}
			return nil
		})},
	}))
	_, err = c.try(t.Context(), "AddPart", `part { guid: "p" }`)
	wantError(t, err, connect.CodeInternal, "the converter to prototest.parts.PartV1 panicked")
	if strings.Contains(err.Error(), "no weight") {
		t.Errorf("the client gets %v", err)
	}
	if p := seen.Load(); p == nil || p.Value != "no weight in PartV2" || len(p.Stack) == 0 {
		t.Errorf("the observer saw %v", p)
	}
}

// TestRekeyedFieldOfAnotherName: the names in messages follow, whatever their field is called.
func TestRekeyedFieldOfAnotherName(t *testing.T) {
	t.Parallel()
	cfg := parts(t)
	part := cfg.Resources[0]
	cfg.Resources[0] = lensResource(t, apiversion.Resource{Old: part.Old, New: part.New, OldName: "guid", NewName: "id"},
		`key: {from: "{part}", to: "x-{part}"}`+partLens)
	table, err := apiversion.NewTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]*message{"CreatePart": text(t, cfg.New.Methods().ByName("CreatePart").Output(), `id: "x-p" weight_mg: 5000`)}
	requests := map[string]*message{}
	c := serve(t, cfg.Old, apiversion.NewHandler(table, partsV2(cfg.New, answers, requests), apiversion.Options{}))
	got := c.do("AddPart", `part { guid: "p" weight_g: 5 }`)
	if want := text(t, got.Descriptor(), `part { guid: "p" weight_g: 5 }`); !proto.Equal(got, want) {
		t.Errorf("shown as %v", got)
	}
	if want := text(t, requests["CreatePart"].Descriptor(), `part { id: "x-p" weight_mg: 5000 }`); !proto.Equal(requests["CreatePart"], want) {
		t.Errorf("made as %v", requests["CreatePart"])
	}
}
