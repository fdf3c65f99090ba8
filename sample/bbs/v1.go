package bbs

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// nativeV1 serves v1 over v1 data.
type nativeV1 struct{ table[*bbsv1.DesiredLRP] }

var _ bbsv1connect.DesiredLRPServiceHandler = nativeV1{}

// NativeV1 returns the v1 API over v1 data, and the path to mount it at.
func NativeV1(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return bbsv1connect.NewDesiredLRPServiceHandler(nativeV1{table[*bbsv1.DesiredLRP]{
		store: store, kind: KindDesiredLRPs,
		fresh: func() *bbsv1.DesiredLRP { return new(bbsv1.DesiredLRP) },
		tag:   func(p *bbsv1.DesiredLRP) tag { return p.ModificationTag },
		bump:  func(p *bbsv1.DesiredLRP) { p.ModificationTag.Index++ },
	}}, opts...)
}

// documentV1 checks what a client gives for a new process and returns its record's document.
func documentV1(p *bbsv1.DesiredLRP) (bson.Raw, error) {
	if p == nil {
		return nil, listing.Invalid("desired_lrp", "is missing")
	}
	if err := checkIdentity(p); err != nil {
		return nil, err
	}
	if err := checkDefinition(fieldDefinition, p.Definition); err != nil {
		return nil, err
	}
	doc, err := protodoc.MarshalID(p.ProcessGuid, p)
	if err != nil {
		return nil, apiversion.RequestError(err)
	}
	return definitionLast(doc)
}

func (n nativeV1) CreateDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.CreateDesiredLRPRequest]) (*connect.Response[bbsv1.CreateDesiredLRPResponse], error) {
	p := proto.CloneOf(req.Msg.GetDesiredLrp())
	if p != nil {
		p.ModificationTag = &bbsv1.ModificationTag{Epoch: newEpoch()}
	}
	doc, err := documentV1(p)
	if err != nil {
		return nil, apiversion.CodeError(err)
	}
	return apiversion.Respond(&bbsv1.CreateDesiredLRPResponse{DesiredLrp: p}, n.create(ctx, p.ProcessGuid, doc))
}

func (n nativeV1) GetDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.GetDesiredLRPRequest]) (*connect.Response[bbsv1.GetDesiredLRPResponse], error) {
	p, err := n.get(ctx, req.Msg.GetProcessGuid(), req.Msg.GetReadMask())
	return apiversion.Respond(&bbsv1.GetDesiredLRPResponse{DesiredLrp: p}, err)
}

func (n nativeV1) ListDesiredLRPs(ctx context.Context, req *connect.Request[bbsv1.ListDesiredLRPsRequest]) (*connect.Response[bbsv1.ListDesiredLRPsResponse], error) {
	page, err := n.list(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.ListDesiredLRPsResponse{DesiredLrps: page.Items, NextPageToken: page.NextPageToken}, err)
}

func (n nativeV1) UpdateDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.UpdateDesiredLRPRequest]) (*connect.Response[bbsv1.UpdateDesiredLRPResponse], error) {
	m := req.Msg
	if err := checkMutable(m.GetInstances(), m.GetRoutes().GetEntries(), m.GetAnnotation()); err != nil {
		return nil, err
	}
	p, err := n.change(ctx, m.GetProcessGuid(), given(m.GetExpectedModificationTag()), func(p *bbsv1.DesiredLRP) ([]record.Mutation, error) {
		if m.Instances != nil {
			p.Instances = *m.Instances
		}
		if m.Routes != nil {
			p.Routes = m.Routes.GetEntries()
		}
		if m.Annotation != nil {
			p.Annotation = *m.Annotation
		}
		return nil, nil
	})
	return apiversion.Respond(&bbsv1.UpdateDesiredLRPResponse{DesiredLrp: p}, err)
}

func (n nativeV1) DeleteDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.DeleteDesiredLRPRequest]) (*connect.Response[bbsv1.DeleteDesiredLRPResponse], error) {
	return apiversion.Respond(&bbsv1.DeleteDesiredLRPResponse{}, n.remove(ctx, req.Msg.GetProcessGuid()))
}

func (n nativeV1) WatchDesiredLRPs(ctx context.Context, req *connect.Request[bbsv1.WatchDesiredLRPsRequest], out *connect.ServerStream[bbsv1.WatchDesiredLRPsResponse]) error {
	return apiversion.CodeError(n.watch(ctx, req.Msg, func(e vrunner.EventType, guid string, p *bbsv1.DesiredLRP) error {
		return out.Send(&bbsv1.WatchDesiredLRPsResponse{Event: bbsv1.WatchDesiredLRPsResponse_Event(e), ProcessGuid: guid, DesiredLrp: p})
	}))
}
