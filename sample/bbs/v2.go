package bbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	bbsv2 "dbcontroller/gen/bbs/v2"
	"dbcontroller/gen/bbs/v2/bbsv2connect"
	"dbcontroller/record"
)

// nativeV2 serves v2 over v2 data.
type nativeV2 struct {
	bbsv2connect.UnimplementedLRPDeploymentServiceHandler
	store Store
}

var _ bbsv2connect.LRPDeploymentServiceHandler = nativeV2{}

// NativeV2 returns the v2 API over v2 data, and the path to mount it at.
func NativeV2(store Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return bbsv2connect.NewLRPDeploymentServiceHandler(nativeV2{store: store}, opts...)
}

// lrpDeployment is the message of a process.
func lrpDeployment(p process) (*bbsv2.LRPDeployment, error) {
	d, err := readLRP(p.deployment)
	if err != nil {
		return nil, err
	}
	out := &bbsv2.LRPDeployment{
		ProcessGuid: d.ProcessGUID, Domain: d.Domain, Instances: d.Instances, Routes: d.Routes, Annotation: d.Annotation,
		Definitions: map[string]*bbsv2.Definition{}, ActiveDefinitionId: d.Active, HealthyDefinitionId: d.Healthy, ModificationTag: tagV2(d.Tag),
	}
	for _, r := range p.definitions {
		_, id, err := splitDefinitionKey(r.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errStored, err)
		}
		def, err := readDefinition(r.Doc)
		if err != nil {
			return nil, fmt.Errorf("definition %s: %w", id, err)
		}
		out.Definitions[id] = definitionV2(def)
	}
	return out, nil
}

// definitionMutation creates a definition.
func definitionMutation(guid, id string, def *bbsv2.Definition) (record.Mutation, error) {
	if err := checkName("definition_id", id); err != nil {
		return record.Mutation{}, invalid("%w", err)
	}
	if def == nil {
		return record.Mutation{}, invalid("definition %s is missing", id)
	}
	key := definitionKey(guid, id)
	doc, err := encode(bson.D{{Key: fieldID, Value: key}, {Key: fieldGUID, Value: guid}, {Key: fieldDefID, Value: id}, {Key: fieldDefinition, Value: definitionFromV2(def)}})
	return record.Mutation{Kind: KindDefinitions, Key: record.StringKey(key), Doc: doc, Absent: true}, err
}

func (s nativeV2) create(ctx context.Context, in *bbsv2.LRPDeployment) (process, error) {
	if in == nil {
		return process{}, invalid("lrp_deployment is missing")
	}
	if err := checkIdentity(in.ProcessGuid, in.Domain, in.Instances, in.Routes); err != nil {
		return process{}, err
	}
	if n := len(in.Definitions); n == 0 || n > maxDefinitions {
		return process{}, invalid("there are %d definitions, must be 1 to %d", n, maxDefinitions)
	}
	if _, ok := in.Definitions[in.ActiveDefinitionId]; !ok {
		return process{}, invalid("active_definition_id %q is not one of definitions", in.ActiveDefinitionId)
	}
	if _, ok := in.Definitions[in.HealthyDefinitionId]; !ok && in.HealthyDefinitionId != "" {
		return process{}, invalid("healthy_definition_id %q is not one of definitions", in.HealthyDefinitionId)
	}
	d := append(identity(in.ProcessGuid, in.Domain, in.Instances, in.Routes, in.Annotation, newTag()), bson.E{Key: fieldActive, Value: in.ActiveDefinitionId})
	if in.HealthyDefinitionId != "" {
		d = append(d, bson.E{Key: fieldHealthy, Value: in.HealthyDefinitionId})
	}
	doc, err := encode(d)
	if err != nil {
		return process{}, err
	}
	p := process{guid: in.ProcessGuid, deployment: doc}
	ms := []record.Mutation{{Kind: KindDeployments, Key: record.StringKey(in.ProcessGuid), Doc: doc, Absent: true}}
	for _, id := range slices.Sorted(maps.Keys(in.Definitions)) {
		m, err := definitionMutation(in.ProcessGuid, id, in.Definitions[id])
		if err != nil {
			return process{}, err
		}
		ms = append(ms, m)
		p.definitions = append(p.definitions, record.Record{Kind: m.Kind, Key: m.Key, Doc: m.Doc})
	}
	return p, s.store.Write(ctx, ms)
}

func (s nativeV2) CreateLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.CreateLRPDeploymentRequest]) (*connect.Response[bbsv2.CreateLRPDeploymentResponse], error) {
	p, err := s.create(ctx, req.Msg.GetLrpDeployment())
	if err != nil {
		return nil, rpcError(err)
	}
	out, err := lrpDeployment(p)
	return respond(&bbsv2.CreateLRPDeploymentResponse{LrpDeployment: out}, err)
}

func (s nativeV2) GetLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.GetLRPDeploymentRequest]) (*connect.Response[bbsv2.GetLRPDeploymentResponse], error) {
	p, err := load(ctx, s.store, req.Msg.GetProcessGuid())
	if err != nil {
		return nil, rpcError(err)
	}
	out, err := lrpDeployment(p)
	return respond(&bbsv2.GetLRPDeploymentResponse{LrpDeployment: out}, err)
}

// ListLRPDeployments is no snapshot: each process is shown as it was at some moment of
// the request.
func (s nativeV2) ListLRPDeployments(ctx context.Context, req *connect.Request[bbsv2.ListLRPDeploymentsRequest]) (*connect.Response[bbsv2.ListLRPDeploymentsResponse], error) {
	var out bbsv2.ListLRPDeploymentsResponse
	next, err := page(ctx, s.store, KindDeployments, req.Msg, func(guid string, _ bson.Raw, _ lrpDoc) error {
		p, err := load(ctx, s.store, guid)
		if errors.Is(err, record.ErrNotFound) {
			return errGone
		}
		if err != nil {
			return err
		}
		d, err := lrpDeployment(p)
		if err != nil {
			return fmt.Errorf("%s: %w", guid, err)
		}
		out.LrpDeployments = append(out.LrpDeployments, d)
		return nil
	})
	out.NextPageToken = next
	return respond(&out, err)
}

// changed runs a change of a deployment and returns its message.
func (s nativeV2) changed(ctx context.Context, guid string, tag *bbsv2.ModificationTag, apply func(process, bson.D) (bson.D, []record.Mutation, error)) (*bbsv2.LRPDeployment, error) {
	p, err := change{kind: KindDeployments, guid: guid, want: expected(tag, tag != nil), definitions: true, apply: apply}.run(ctx, s.store)
	if err != nil {
		return nil, err
	}
	return lrpDeployment(p)
}

func (s nativeV2) UpdateLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.UpdateLRPDeploymentRequest]) (*connect.Response[bbsv2.UpdateLRPDeploymentResponse], error) {
	m := req.Msg
	if err := checkMutable(m.Instances, m.GetRoutes().GetEntries()); err != nil {
		return nil, err
	}
	out, err := s.changed(ctx, m.GetProcessGuid(), m.GetExpectedModificationTag(), func(p process, doc bson.D) (bson.D, []record.Mutation, error) {
		doc = mutable(doc, m.Instances, m.GetRoutes().GetEntries(), m.Routes != nil, m.Annotation)
		if m.HealthyDefinitionId != nil {
			if _, ok := p.definition(*m.HealthyDefinitionId); !ok && *m.HealthyDefinitionId != "" {
				return nil, nil, fmt.Errorf("definition %q: %w", *m.HealthyDefinitionId, record.ErrNotFound)
			}
			doc = set(doc, fieldHealthy, *m.HealthyDefinitionId)
		}
		return doc, nil, nil
	})
	return respond(&bbsv2.UpdateLRPDeploymentResponse{LrpDeployment: out}, err)
}

func (s nativeV2) AddDefinition(ctx context.Context, req *connect.Request[bbsv2.AddDefinitionRequest]) (*connect.Response[bbsv2.AddDefinitionResponse], error) {
	m := req.Msg
	add, err := definitionMutation(m.GetProcessGuid(), m.GetDefinitionId(), m.GetDefinition())
	if err != nil {
		return nil, rpcError(err)
	}
	out, err := s.changed(ctx, m.GetProcessGuid(), m.GetExpectedModificationTag(), func(p process, doc bson.D) (bson.D, []record.Mutation, error) {
		if _, there := p.definition(m.GetDefinitionId()); there {
			return nil, nil, fmt.Errorf("definition %q: %w", m.GetDefinitionId(), record.ErrExists)
		}
		if len(p.definitions) >= maxDefinitions {
			return nil, nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the process has %d definitions, the most that are allowed", len(p.definitions)))
		}
		return doc, []record.Mutation{add}, nil
	})
	return respond(&bbsv2.AddDefinitionResponse{LrpDeployment: out}, err)
}

func (s nativeV2) ActivateDefinition(ctx context.Context, req *connect.Request[bbsv2.ActivateDefinitionRequest]) (*connect.Response[bbsv2.ActivateDefinitionResponse], error) {
	m := req.Msg
	out, err := s.changed(ctx, m.GetProcessGuid(), m.GetExpectedModificationTag(), func(p process, doc bson.D) (bson.D, []record.Mutation, error) {
		if _, there := p.definition(m.GetDefinitionId()); !there {
			return nil, nil, fmt.Errorf("definition %q: %w", m.GetDefinitionId(), record.ErrNotFound)
		}
		return set(doc, fieldActive, m.GetDefinitionId()), nil, nil
	})
	return respond(&bbsv2.ActivateDefinitionResponse{LrpDeployment: out}, err)
}

func (s nativeV2) DeleteLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.DeleteLRPDeploymentRequest]) (*connect.Response[bbsv2.DeleteLRPDeploymentResponse], error) {
	return respond(&bbsv2.DeleteLRPDeploymentResponse{}, remove(ctx, s.store, req.Msg.GetProcessGuid()))
}
