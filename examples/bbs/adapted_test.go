package bbs

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/vrunner"
)

// adaptedStack has v1's own handlers run over v2 data.
func adaptedStack(t *testing.T) (api, *sampletest.Store) {
	t.Helper()
	reg := transform.NewRegistry(Service)
	if err := Register(reg); err != nil {
		t.Fatal(err)
	}
	show, err := reg.Direction(V2, V1)
	if err != nil {
		t.Fatal(err)
	}
	keep, err := reg.Direction(V1, V2)
	if err != nil {
		t.Fatal(err)
	}
	s := sampletest.New(t, kindsV2...)
	a, err := adapt.New(s, show, keep, adapt.Config{Leads: map[string]string{KindDesiredLRPs: KindDeployments}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(NativeV1(vrunner.Over(s, a)))
	mux.Handle(NativeV2(s))
	return serve(t, mux), s
}

// TestAdaptedKeepsTheRest: what v1 does not know of survives a write of v1's own handlers
// over v2 data.
func TestAdaptedKeepsTheRest(t *testing.T) {
	t.Parallel()
	a, s := adaptedStack(t)
	createV1(t, a, lrpV1("p", "cf"))
	s.Put(t, KindDefinitions, bson.D{{Key: "_id", Value: "p/next"}, {Key: "process_guid", Value: "p"}, {Key: "definition_id", Value: "next"}, {Key: "definition", Value: bson.D{}}})
	_, err := a.v1.UpdateDesiredLRP(t.Context(), connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(9)}))
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Get(t.Context(), KindDefinitions, "p/next"); err != nil {
		t.Errorf("%s, %v", rec.Doc, err)
	}
	if got := getV1(t, a, "p"); got.GetInstances() != 9 {
		t.Errorf("v1 sees %v", got)
	}
}
