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

type inspector struct{ err error }

func (i inspector) Sizes(context.Context) ([]*pb.KindSize, error) {
	return []*pb.KindSize{{Version: "v1", Kind: "packages", Records: 3, Bytes: 300}}, i.err
}

func (i inspector) Sample(_ context.Context, version, kind string) (*pb.SampleRecordResponse, error) {
	return &pb.SampleRecordResponse{Kind: kind, Record: version}, i.err
}

// TestInspect looks into the databases of the process's own deployment only.
func TestInspect(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	a := serveWith(t, w, api.Config{Inspector: inspector{}})
	var sizes struct {
		Sizes []struct{ Kind, Records string }
	}
	if a.ok(t, "GetSizes", `{}`, &sizes); len(sizes.Sizes) != 1 || sizes.Sizes[0].Kind != "packages" || sizes.Sizes[0].Records != "3" {
		t.Errorf("%+v", sizes)
	}
	var sample struct{ Kind, Record string }
	if a.ok(t, "SampleRecord", `{"version": "v1", "kind": "packages"}`, &sample); sample.Kind != "packages" || sample.Record != "v1" {
		t.Errorf("%+v", sample)
	}
	var none struct{ Samples []any }
	if a.ok(t, "ListSamples", `{"name": "services/other/deployments/x"}`, &none); len(none.Samples) != 0 {
		t.Errorf("of another process's deployment: %+v", none)
	}
	a.fails(t, "SampleRecord", `{"kind": "packages"}`, `invalid_argument: version "": want the record's version, such as v1`)
	sizes.Sizes = nil
	if a.ok(t, "GetSizes", `{"name": "services/other/deployments/x"}`, &sizes); len(sizes.Sizes) != 0 {
		t.Errorf("of another process's deployment: %+v", sizes)
	}
	a = serveWith(t, w, api.Config{Inspector: inspector{errors.New("records are not shown")}})
	a.fails(t, "SampleRecord", `{"version": "v1"}`, `failed_precondition: sample: records are not shown`)
	a = serveWith(t, w, api.Config{})
	a.fails(t, "SampleRecord", `{"version": "v1"}`, `failed_precondition: sample: this controller cannot: ask a controller that is configured for it`)
}
