package api

import (
	"context"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
)

// Inspector looks into the databases of the deployment. It changes nothing.
type Inspector interface {
	// Sizes estimates the size of each kind. A kind whose size is not known has the reason.
	Sizes(ctx context.Context) ([]*pb.KindSize, error)
	// Sample returns any record of a kind, with its values. The error explains, for an operator, why
	// it may not be shown.
	Sample(ctx context.Context, version, kind string) (*pb.SampleRecordResponse, error)
}

// GetSizes implements the API. The sizes of another process's deployment are not known here.
func (v *Service) GetSizes(ctx context.Context, req *connect.Request[pb.GetSizesRequest]) (*connect.Response[pb.GetSizesResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	if s != v.own || v.cfg.Inspector == nil {
		return connect.NewResponse(&pb.GetSizesResponse{}), nil
	}
	sizes, err := v.cfg.Inspector.Sizes(ctx)
	if err != nil {
		return nil, verbError("sizes", err)
	}
	return connect.NewResponse(&pb.GetSizesResponse{Sizes: sizes}), nil
}

// SampleRecord implements the API.
func (v *Service) SampleRecord(ctx context.Context, req *connect.Request[pb.SampleRecordRequest]) (*connect.Response[pb.SampleRecordResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	if req.Msg.Version == "" {
		return nil, invalid("version", "", "the record's version, such as v1")
	}
	if err := v.cannot("sample", s, v.cfg.Inspector != nil); err != nil {
		return nil, err
	}
	res, err := v.cfg.Inspector.Sample(ctx, req.Msg.Version, req.Msg.Kind)
	if err != nil {
		return nil, verbError("sample", err)
	}
	return connect.NewResponse(res), nil
}

// ListSamples implements the API. A deployment of another process has no samples here.
func (v *Service) ListSamples(_ context.Context, req *connect.Request[pb.ListSamplesRequest]) (*connect.Response[pb.ListSamplesResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	res := &pb.ListSamplesResponse{}
	if s == v.own {
		res.Samples = v.lastHour.All()
	}
	return connect.NewResponse(res), nil
}

// sample returns the progress of the process's own deployment; nil: no upgrade runs. At rest a
// deployment costs the coordination store no read for it: a process may have hundreds.
func (v *Service) sample(ctx context.Context) (*pb.Progress, error) {
	d, err := v.own.Known(ctx)
	if err != nil {
		return nil, err
	}
	if d.Upgrade == nil {
		return nil, nil //nolint:nilnil // it is the documented result
	}
	shards, err := v.own.Progress(ctx)
	if err != nil {
		return nil, err
	}
	return status.Of(deployment.State{Record: d, Progress: shards}, status.Process{}).Progress, nil
}
