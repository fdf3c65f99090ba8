package bbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	bbsv1 "dbcontroller/gen/bbs/v1"
	"dbcontroller/gen/bbs/v1/bbsv1connect"
	"dbcontroller/record"
	"dbcontroller/transform"
)

// v1OverV2 serves v1 over v2 data through the transformers.
type v1OverV2 struct {
	bbsv1connect.UnimplementedDesiredLRPServiceHandler
	store Store
}

var _ bbsv1connect.DesiredLRPServiceHandler = v1OverV2{}

// V1OverV2 returns the v1 API over v2 data, and the path to mount it at. A change keeps
// what v1 does not know of: other definitions, and which one is healthy.
func V1OverV2(store Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return bbsv1connect.NewDesiredLRPServiceHandler(v1OverV2{store: store}, opts...)
}

// projected is the v1 message of a v2 process.
func projected(p process) (*bbsv1.DesiredLRP, error) {
	out, err := project(p.group(), transform.Group{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStored, err)
	}
	return desiredLRP(out[0].Doc)
}

func (s v1OverV2) CreateDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.CreateDesiredLRPRequest]) (*connect.Response[bbsv1.CreateDesiredLRPResponse], error) {
	lrp, err := func() (*bbsv1.DesiredLRP, error) {
		doc, err := desiredLRPDoc(req.Msg.GetDesiredLrp())
		if err != nil {
			return nil, err
		}
		p := process{guid: req.Msg.GetDesiredLrp().GetProcessGuid(), deployment: doc}
		src := p.group()
		src.Records[0].Kind = KindDesiredLRPs
		recs, err := promote(src, transform.Group{})
		if err != nil {
			return nil, err
		}
		ms := make([]record.Mutation, len(recs))
		for i, r := range recs {
			ms[i] = record.Mutation{Kind: r.Kind, Key: r.Key, Doc: r.Doc, Absent: true}
		}
		if err := s.store.Write(ctx, ms); err != nil {
			return nil, err
		}
		return desiredLRP(doc)
	}()
	return respond(&bbsv1.CreateDesiredLRPResponse{DesiredLrp: lrp}, err)
}

func (s v1OverV2) GetDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.GetDesiredLRPRequest]) (*connect.Response[bbsv1.GetDesiredLRPResponse], error) {
	lrp, err := func() (*bbsv1.DesiredLRP, error) {
		p, err := load(ctx, s.store, req.Msg.GetProcessGuid())
		if err != nil {
			return nil, err
		}
		return projected(p)
	}()
	return respond(&bbsv1.GetDesiredLRPResponse{DesiredLrp: lrp}, err)
}

// ListDesiredLRPs is no snapshot: each process is shown as it was at some moment of the
// request.
func (s v1OverV2) ListDesiredLRPs(ctx context.Context, req *connect.Request[bbsv1.ListDesiredLRPsRequest]) (*connect.Response[bbsv1.ListDesiredLRPsResponse], error) {
	var out bbsv1.ListDesiredLRPsResponse
	next, err := page(ctx, s.store, KindDeployments, req.Msg, func(guid string, _ bson.Raw, _ lrpDoc) error {
		p, err := load(ctx, s.store, guid)
		if errors.Is(err, record.ErrNotFound) {
			return errGone
		}
		if err != nil {
			return err
		}
		lrp, err := projected(p)
		if err != nil {
			return fmt.Errorf("%s: %w", guid, err)
		}
		out.DesiredLrps = append(out.DesiredLrps, lrp)
		return nil
	})
	out.NextPageToken = next
	return respond(&out, err)
}

func (s v1OverV2) UpdateDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.UpdateDesiredLRPRequest]) (*connect.Response[bbsv1.UpdateDesiredLRPResponse], error) {
	p, err := updateV1(ctx, s.store, KindDeployments, req.Msg)
	if err != nil {
		return nil, rpcError(err)
	}
	lrp, err := projected(p)
	return respond(&bbsv1.UpdateDesiredLRPResponse{DesiredLrp: lrp}, err)
}

func (s v1OverV2) DeleteDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.DeleteDesiredLRPRequest]) (*connect.Response[bbsv1.DeleteDesiredLRPResponse], error) {
	return respond(&bbsv1.DeleteDesiredLRPResponse{}, remove(ctx, s.store, req.Msg.GetProcessGuid()))
}
