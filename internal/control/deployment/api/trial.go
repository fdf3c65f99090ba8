package api

import (
	"context"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// Trier moves a record to another version and back, in memory.
type Trier interface {
	// Try returns an error if the request cannot be carried out. A record that the transform
	// refuses is a result.
	Try(ctx context.Context, req *pb.TryTransformRequest) (*pb.TryTransformResponse, error)
}

// TryTransform implements the API.
func (v *Service) TryTransform(ctx context.Context, req *connect.Request[pb.TryTransformRequest]) (*connect.Response[pb.TryTransformResponse], error) {
	m := req.Msg
	s, err := v.store(m.Name)
	if err != nil {
		return nil, err
	}
	switch {
	case m.FromVersion == "":
		return nil, invalid("from_version", "", "the record's version, such as v1")
	case m.ToVersion == "" || m.ToVersion == m.FromVersion:
		return nil, invalid("to_version", m.ToVersion, "another version, such as v2")
	}
	if err := v.cannot("try", s, v.cfg.Trier != nil); err != nil {
		return nil, err
	}
	res, err := v.cfg.Trier.Try(ctx, m)
	if err != nil {
		return nil, verbError("try", err)
	}
	return connect.NewResponse(res), nil
}
