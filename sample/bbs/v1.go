package bbs

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	bbsv1 "dbcontroller/gen/bbs/v1"
	"dbcontroller/gen/bbs/v1/bbsv1connect"
	"dbcontroller/record"
)

// nativeV1 serves v1 over v1 data.
type nativeV1 struct {
	bbsv1connect.UnimplementedDesiredLRPServiceHandler
	store Store
}

var _ bbsv1connect.DesiredLRPServiceHandler = nativeV1{}

// NativeV1 returns the v1 API over v1 data, and the path to mount it at.
func NativeV1(store Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return bbsv1connect.NewDesiredLRPServiceHandler(nativeV1{store: store}, opts...)
}

// desiredLRPDoc checks a request and makes the record of a new process.
func desiredLRPDoc(lrp *bbsv1.DesiredLRP) (bson.Raw, error) {
	if lrp == nil {
		return nil, invalid("desired_lrp is missing")
	}
	if err := checkIdentity(lrp.ProcessGuid, lrp.Domain, lrp.Instances, lrp.Routes); err != nil {
		return nil, err
	}
	if lrp.Definition == nil {
		return nil, invalid("definition is missing")
	}
	doc := identity(lrp.ProcessGuid, lrp.Domain, lrp.Instances, lrp.Routes, lrp.Annotation, newTag())
	return encode(append(doc, bson.E{Key: fieldDefinition, Value: definitionFromV1(lrp.Definition)}))
}

func desiredLRP(doc bson.Raw) (*bbsv1.DesiredLRP, error) {
	d, err := readLRP(doc)
	if err != nil {
		return nil, err
	}
	return &bbsv1.DesiredLRP{
		ProcessGuid: d.ProcessGUID, Domain: d.Domain, Instances: d.Instances, Routes: d.Routes, Annotation: d.Annotation,
		Definition: definitionV1(d.Definition), ModificationTag: tagV1(d.Tag),
	}, nil
}

func (s nativeV1) CreateDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.CreateDesiredLRPRequest]) (*connect.Response[bbsv1.CreateDesiredLRPResponse], error) {
	lrp, err := func() (*bbsv1.DesiredLRP, error) {
		doc, err := desiredLRPDoc(req.Msg.GetDesiredLrp())
		if err != nil {
			return nil, err
		}
		key := record.StringKey(req.Msg.GetDesiredLrp().GetProcessGuid())
		if err := s.store.Write(ctx, []record.Mutation{{Kind: KindDesiredLRPs, Key: key, Doc: doc, Absent: true}}); err != nil {
			return nil, err
		}
		return desiredLRP(doc)
	}()
	return respond(&bbsv1.CreateDesiredLRPResponse{DesiredLrp: lrp}, err)
}

func (s nativeV1) GetDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.GetDesiredLRPRequest]) (*connect.Response[bbsv1.GetDesiredLRPResponse], error) {
	lrp, err := func() (*bbsv1.DesiredLRP, error) {
		rec, err := s.store.Get(ctx, KindDesiredLRPs, req.Msg.GetProcessGuid())
		if err != nil {
			return nil, err
		}
		return desiredLRP(rec.Doc)
	}()
	return respond(&bbsv1.GetDesiredLRPResponse{DesiredLrp: lrp}, err)
}

func (s nativeV1) ListDesiredLRPs(ctx context.Context, req *connect.Request[bbsv1.ListDesiredLRPsRequest]) (*connect.Response[bbsv1.ListDesiredLRPsResponse], error) {
	var out bbsv1.ListDesiredLRPsResponse
	next, err := page(ctx, s.store, KindDesiredLRPs, req.Msg, func(_ string, doc bson.Raw, _ lrpDoc) error {
		lrp, err := desiredLRP(doc)
		out.DesiredLrps = append(out.DesiredLrps, lrp)
		return err
	})
	out.NextPageToken = next
	return respond(&out, err)
}

// updateV1 makes the change of an update, in the record that carries the tag.
func updateV1(ctx context.Context, store Store, kind string, req *bbsv1.UpdateDesiredLRPRequest) (process, error) {
	if err := checkMutable(req.Instances, req.GetRoutes().GetEntries()); err != nil {
		return process{}, err
	}
	tag := req.GetExpectedModificationTag()
	return change{
		kind: kind, guid: req.GetProcessGuid(), want: expected(tag, tag != nil), definitions: kind == KindDeployments,
		apply: func(_ process, doc bson.D) (bson.D, []record.Mutation, error) {
			return mutable(doc, req.Instances, req.GetRoutes().GetEntries(), req.Routes != nil, req.Annotation), nil, nil
		},
	}.run(ctx, store)
}

func (s nativeV1) UpdateDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.UpdateDesiredLRPRequest]) (*connect.Response[bbsv1.UpdateDesiredLRPResponse], error) {
	p, err := updateV1(ctx, s.store, KindDesiredLRPs, req.Msg)
	if err != nil {
		return nil, rpcError(err)
	}
	lrp, err := desiredLRP(p.deployment)
	return respond(&bbsv1.UpdateDesiredLRPResponse{DesiredLrp: lrp}, err)
}

func (s nativeV1) DeleteDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.DeleteDesiredLRPRequest]) (*connect.Response[bbsv1.DeleteDesiredLRPResponse], error) {
	err := s.store.Write(ctx, []record.Mutation{{Kind: KindDesiredLRPs, Key: record.StringKey(req.Msg.GetProcessGuid()), Exists: true}})
	return respond(&bbsv1.DeleteDesiredLRPResponse{}, err)
}
