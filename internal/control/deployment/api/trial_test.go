package api_test

import (
	"context"
	"errors"
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

type trier struct{ err error }

func (t trier) Try(_ context.Context, req *pb.TryTransformRequest) (*pb.TryTransformResponse, error) {
	return &pb.TryTransformResponse{Was: []*pb.TriedRecord{{Kind: req.Kind, Record: req.Record}}}, t.err
}

// TestTryTransform names what is wrong with a request.
func TestTryTransform(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serveWith(t, w, api.Config{Trier: trier{}})
	const versions = `"fromVersion": "v1", "toVersion": "v2"`
	var got struct{ Was []struct{ Kind string } }
	if a.ok(t, "TryTransform", `{`+versions+`, "kind": "packages", "record": "{}"}`, &got); len(got.Was) != 1 || got.Was[0].Kind != "packages" {
		t.Errorf("%+v", got)
	}
	a.fails(t, "TryTransform", `{"toVersion": "v2"}`, `invalid_argument: from_version "": want the record's version, such as v1`)
	a.fails(t, "TryTransform", `{"fromVersion": "v1", "toVersion": "v1"}`, `invalid_argument: to_version "v1": want another version, such as v2`)
	a.fails(t, "TryTransform", `{"name": "services/other/deployments/x", `+versions+`}`, `failed_precondition: try: this controller is not configured for services/other/deployments/x: ask a controller that is`)
	a = serveWith(t, w, api.Config{Trier: trier{errors.New("kind is wrong")}})
	a.fails(t, "TryTransform", `{`+versions+`}`, `failed_precondition: try: kind is wrong`)
	a = serveWith(t, w, api.Config{})
	a.fails(t, "TryTransform", `{`+versions+`}`, `failed_precondition: try: this controller cannot: ask a controller that is configured for it`)
}
