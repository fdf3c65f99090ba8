package bbs

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// nativeV2 serves v2 over v2 data.
type nativeV2 struct{ table[*bbsv2.LRPDeployment] }

var _ bbsv2connect.LRPDeploymentServiceHandler = nativeV2{}

// NativeV2 returns the v2 API over v2 data, and the path to mount it at.
func NativeV2(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return bbsv2connect.NewLRPDeploymentServiceHandler(nativeV2{table[*bbsv2.LRPDeployment]{
		store: store, kind: KindDeployments,
		fresh: func() *bbsv2.LRPDeployment { return new(bbsv2.LRPDeployment) },
		parts: &parts[*bbsv2.LRPDeployment]{kind: KindDefinitions, field: fieldDefinitions, attach: attachDefinitions, detach: detachDefinitions},
		tag:   func(p *bbsv2.LRPDeployment) tag { return p.ModificationTag },
		bump:  func(p *bbsv2.LRPDeployment) { p.ModificationTag.Index++ },
	}}, opts...)
}

// checkV2 checks what a client gives for a new process.
func checkV2(p *bbsv2.LRPDeployment) error {
	if p == nil {
		return listing.Invalid("lrp_deployment", "is missing")
	}
	if err := checkIdentity(p); err != nil {
		return err
	}
	if n := len(p.Definitions); n == 0 || n > maxDefinitions {
		return listing.Invalid(fieldDefinitions, "there are %d, must be 1 to %d", n, maxDefinitions)
	}
	for id, d := range p.Definitions {
		if err := nameError(id); err != nil {
			return listing.Invalid(fieldDefinitions, "an id %s", err)
		}
		if err := checkDefinition(fieldDefinitions+"."+id, d); err != nil {
			return err
		}
	}
	if _, ok := p.Definitions[p.ActiveDefinitionId]; !ok {
		return listing.Invalid(fieldActive, "%q is not one of definitions", p.ActiveDefinitionId)
	}
	if _, ok := p.Definitions[p.HealthyDefinitionId]; !ok && p.HealthyDefinitionId != "" {
		return listing.Invalid(fieldHealthy, "%q is not one of definitions", p.HealthyDefinitionId)
	}
	return nil
}

// documentsV2 checks likewise and returns the document of the deployment's record, and
// what makes its definitions.
func documentsV2(p *bbsv2.LRPDeployment) (bson.Raw, []record.Mutation, error) {
	if err := checkV2(p); err != nil {
		return nil, nil, err
	}
	doc, err := protodoc.MarshalID(p.ProcessGuid, detachDefinitions(p))
	if err != nil {
		return nil, nil, apiversion.RequestError(err)
	}
	if doc, err = noDefinitions(doc); err != nil {
		return nil, nil, err
	}
	var definitions []record.Mutation
	for _, id := range slices.Sorted(maps.Keys(p.Definitions)) {
		m, err := newDefinition(p.ProcessGuid, id, p.Definitions[id])
		if err != nil {
			return nil, nil, err
		}
		definitions = append(definitions, m)
	}
	return doc, definitions, nil
}

func (n nativeV2) CreateLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.CreateLRPDeploymentRequest]) (*connect.Response[bbsv2.CreateLRPDeploymentResponse], error) {
	p := proto.CloneOf(req.Msg.GetLrpDeployment())
	if p != nil {
		p.ModificationTag = &bbsv2.ModificationTag{Epoch: newEpoch()}
	}
	doc, definitions, err := documentsV2(p)
	if err != nil {
		return nil, apiversion.CodeError(err)
	}
	return apiversion.Respond(&bbsv2.CreateLRPDeploymentResponse{LrpDeployment: p}, n.create(ctx, p.ProcessGuid, doc, definitions...))
}

func (n nativeV2) GetLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.GetLRPDeploymentRequest]) (*connect.Response[bbsv2.GetLRPDeploymentResponse], error) {
	p, err := n.get(ctx, req.Msg.GetProcessGuid(), req.Msg.GetReadMask())
	return apiversion.Respond(&bbsv2.GetLRPDeploymentResponse{LrpDeployment: p}, err)
}

func (n nativeV2) ListLRPDeployments(ctx context.Context, req *connect.Request[bbsv2.ListLRPDeploymentsRequest]) (*connect.Response[bbsv2.ListLRPDeploymentsResponse], error) {
	page, err := n.list(ctx, req.Msg)
	return apiversion.Respond(&bbsv2.ListLRPDeploymentsResponse{LrpDeployments: page.Items, NextPageToken: page.NextPageToken}, err)
}

func (n nativeV2) UpdateLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.UpdateLRPDeploymentRequest]) (*connect.Response[bbsv2.UpdateLRPDeploymentResponse], error) {
	m := req.Msg
	if err := checkMutable(m.GetInstances(), m.GetRoutes().GetEntries(), m.GetAnnotation()); err != nil {
		return nil, err
	}
	p, err := n.change(ctx, m.GetProcessGuid(), given(m.GetExpectedModificationTag()), func(p *bbsv2.LRPDeployment) ([]record.Mutation, error) {
		if m.Instances != nil {
			p.Instances = *m.Instances
		}
		if m.Routes != nil {
			p.Routes = m.Routes.GetEntries()
		}
		if m.Annotation != nil {
			p.Annotation = *m.Annotation
		}
		if m.HealthyDefinitionId == nil {
			return nil, nil
		}
		p.HealthyDefinitionId = *m.HealthyDefinitionId
		if p.HealthyDefinitionId == "" {
			return nil, nil
		}
		return nil, hasDefinition(p, p.HealthyDefinitionId)
	})
	return apiversion.Respond(&bbsv2.UpdateLRPDeploymentResponse{LrpDeployment: p}, err)
}

func hasDefinition(p *bbsv2.LRPDeployment, id string) error {
	if _, there := p.Definitions[id]; !there {
		return fmt.Errorf("definition %q: %w", id, record.ErrNotFound)
	}
	return nil
}

func (n nativeV2) AddDefinition(ctx context.Context, req *connect.Request[bbsv2.AddDefinitionRequest]) (*connect.Response[bbsv2.AddDefinitionResponse], error) {
	m := req.Msg
	id := m.GetDefinitionId()
	if err := checkName("definition_id", id); err != nil {
		return nil, err
	}
	if err := checkDefinition("definition", m.GetDefinition()); err != nil {
		return nil, err
	}
	add, err := newDefinition(m.GetProcessGuid(), id, m.GetDefinition())
	if err != nil {
		return nil, apiversion.CodeError(err)
	}
	p, err := n.change(ctx, m.GetProcessGuid(), given(m.GetExpectedModificationTag()), func(p *bbsv2.LRPDeployment) ([]record.Mutation, error) {
		if hasDefinition(p, id) == nil {
			return nil, fmt.Errorf("definition %q: %w", id, record.ErrExists)
		}
		if have := len(p.Definitions); have >= maxDefinitions {
			return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the process has %d definitions, the most that are allowed", have))
		}
		p.Definitions[id] = m.GetDefinition()
		return []record.Mutation{add}, nil
	})
	return apiversion.Respond(&bbsv2.AddDefinitionResponse{LrpDeployment: p}, err)
}

func (n nativeV2) ActivateDefinition(ctx context.Context, req *connect.Request[bbsv2.ActivateDefinitionRequest]) (*connect.Response[bbsv2.ActivateDefinitionResponse], error) {
	m := req.Msg
	p, err := n.change(ctx, m.GetProcessGuid(), given(m.GetExpectedModificationTag()), func(p *bbsv2.LRPDeployment) ([]record.Mutation, error) {
		p.ActiveDefinitionId = m.GetDefinitionId()
		return nil, hasDefinition(p, p.ActiveDefinitionId)
	})
	return apiversion.Respond(&bbsv2.ActivateDefinitionResponse{LrpDeployment: p}, err)
}

func (n nativeV2) DeleteLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.DeleteLRPDeploymentRequest]) (*connect.Response[bbsv2.DeleteLRPDeploymentResponse], error) {
	return apiversion.Respond(&bbsv2.DeleteLRPDeploymentResponse{}, n.remove(ctx, req.Msg.GetProcessGuid()))
}

func (n nativeV2) WatchLRPDeployments(ctx context.Context, req *connect.Request[bbsv2.WatchLRPDeploymentsRequest], out *connect.ServerStream[bbsv2.WatchLRPDeploymentsResponse]) error {
	return apiversion.CodeError(n.watch(ctx, req.Msg, func(e vrunner.EventType, guid string, p *bbsv2.LRPDeployment) error {
		return out.Send(&bbsv2.WatchLRPDeploymentsResponse{Event: bbsv2.WatchLRPDeploymentsResponse_Event(e), ProcessGuid: guid, LrpDeployment: p})
	}))
}
