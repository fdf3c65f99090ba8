package bbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// nativeV2 serves the v2 methods that are not standard methods of a table.
type nativeV2 struct {
	bbsv2connect.UnimplementedLRPDeploymentServiceHandler
	processes *resource.Table[*bbsv2.LRPDeployment]
}

func tableV2(store vrunner.Store) *resource.Table[*bbsv2.LRPDeployment] {
	return resource.New(store, resource.Config[*bbsv2.LRPDeployment]{
		Kind: KindDeployments, Pattern: pattern, NameField: fieldGUID, MaxID: maxName, Check: checkV2, Within: within,
		Revision: resource.Revision[*bbsv2.LRPDeployment]{
			Field: fieldTag,
			First: func(p *bbsv2.LRPDeployment) {
				p.ModificationTag = &bbsv2.ModificationTag{Epoch: newEpoch()}
				// The service maintains this list; a client must not set it.
				p.FormerDefinitionIds = nil
			},
			Next: func(p *bbsv2.LRPDeployment) { p.ModificationTag.Index++ },
			Text: func(p *bbsv2.LRPDeployment) string { return tagText(p.ModificationTag) },
		},
		Parts: resource.PartsOf(KindDefinitions, fieldDefinitions, splitDefinitions, joinDefinitions),
	})
}

// NativeV2 returns the v2 API of processes over v2 data, and its mount path.
func NativeV2(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	table := tableV2(store)
	_, own := bbsv2connect.NewLRPDeploymentServiceHandler(nativeV2{processes: table}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: serviceV2, Tables: []resource.Standard{table}, Own: own, Options: opts})
}

// splitDefinitions returns the definition records of a process.
func splitDefinitions(p *bbsv2.LRPDeployment) map[string]*bbsv2.DefinitionRecord {
	out := make(map[string]*bbsv2.DefinitionRecord, len(p.Definitions))
	for id, d := range p.Definitions {
		out[id] = &bbsv2.DefinitionRecord{ProcessGuid: p.ProcessGuid, DefinitionId: id, Definition: d}
	}
	return out
}

// joinDefinitions puts the definition records of a process into its message.
func joinDefinitions(p *bbsv2.LRPDeployment, records map[string]*bbsv2.DefinitionRecord) error {
	p.Definitions = make(map[string]*bbsv2.Definition, len(records))
	for id, r := range records {
		if r.Definition == nil {
			return errors.New("definition " + id + ": no " + fieldDefinition)
		}
		p.Definitions[id] = r.Definition
	}
	return nil
}

// checkV2 checks a new process. Methods that change a process check their own fields.
func checkV2(_ context.Context, p, before *bbsv2.LRPDeployment) error {
	if before != nil {
		return nil
	}
	if err := checkIdentity(p); err != nil {
		return err
	}
	if n := len(p.Definitions); n == 0 || n > maxDefinitions {
		return listing.Invalid(fieldDefinitions, "there are %d, must be 1 to %d", n, maxDefinitions)
	}
	// An id becomes part of a record's key.
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
	// No definition of a new process has run, and a fallback must never activate one that has not.
	if p.HealthyDefinitionId != "" {
		return listing.Invalid(fieldHealthy, "is %q, and nothing of a new process has run: leave it out, the service sets it when an instance runs", p.HealthyDefinitionId)
	}
	return nil
}

func (n nativeV2) UpdateLRPDeployment(ctx context.Context, req *connect.Request[bbsv2.UpdateLRPDeploymentRequest]) (*connect.Response[bbsv2.UpdateLRPDeploymentResponse], error) {
	m := req.Msg
	if err := checkMutable(m, m.GetRoutes().GetEntries()); err != nil {
		return nil, err
	}
	adds := m.GetDefinitionId() != "" || m.Definition != nil
	if adds {
		if err := checkNewDefinition(m.GetDefinitionId(), m.GetDefinition()); err != nil {
			return nil, err
		}
	}
	p, err := n.processes.Change(ctx, m, func(p *bbsv2.LRPDeployment) error {
		if adds {
			if err := addDefinition(p, m.GetDefinitionId(), m.GetDefinition()); err != nil {
				return err
			}
			// A definition in an update is added and activated in the same write.
			if err := choose(p, m.GetDefinitionId()); err != nil {
				return err
			}
		}
		if m.Instances != nil {
			p.Instances = *m.Instances
		}
		if m.Routes != nil {
			p.Routes = m.Routes.GetEntries()
		}
		if m.Annotation != nil {
			p.Annotation = *m.Annotation
		}
		if m.RolloutTimeoutMs != nil {
			p.RolloutTimeoutMs = *m.RolloutTimeoutMs
		}
		if m.FallBackAfterMs != nil {
			p.FallBackAfterMs = *m.FallBackAfterMs
		}
		if m.HealthyDefinitionId == nil {
			return nil
		}
		p.HealthyDefinitionId = *m.HealthyDefinitionId
		if p.HealthyDefinitionId == "" {
			return nil
		}
		return hasDefinition(p, p.HealthyDefinitionId)
	})
	return apiversion.Respond(&bbsv2.UpdateLRPDeploymentResponse{LrpDeployment: p}, err)
}

func hasDefinition(p *bbsv2.LRPDeployment, id string) error {
	if _, there := p.Definitions[id]; !there {
		return noDefinition(id)
	}
	return nil
}

func noDefinition(id string) error { return fmt.Errorf("definition %q: %w", id, record.ErrNotFound) }

// checkNewDefinition checks a definition of either version and its id.
func checkNewDefinition(id string, d proto.Message) error {
	if err := checkName("definition_id", id); err != nil {
		return err
	}
	return checkDefinition(fieldDefinition, d)
}

func addDefinition(p *bbsv2.LRPDeployment, id string, d *bbsv2.Definition) error {
	// Definitions never change: an instance refers to one by its id.
	if hasDefinition(p, id) == nil {
		return fmt.Errorf("definition %q: %w", id, record.ErrExists)
	}
	if have := len(p.Definitions); have >= maxDefinitions {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the process has %d definitions, the most that are allowed", have))
	}
	p.Definitions[id] = d
	return nil
}

func (n nativeV2) AddDefinition(ctx context.Context, req *connect.Request[bbsv2.AddDefinitionRequest]) (*connect.Response[bbsv2.AddDefinitionResponse], error) {
	m := req.Msg
	if err := checkNewDefinition(m.GetDefinitionId(), m.GetDefinition()); err != nil {
		return nil, err
	}
	p, err := n.processes.Change(ctx, m, func(p *bbsv2.LRPDeployment) error {
		return addDefinition(p, m.GetDefinitionId(), m.GetDefinition())
	})
	return apiversion.Respond(&bbsv2.AddDefinitionResponse{LrpDeployment: p}, err)
}

func (n nativeV2) ActivateDefinition(ctx context.Context, req *connect.Request[bbsv2.ActivateDefinitionRequest]) (*connect.Response[bbsv2.ActivateDefinitionResponse], error) {
	p, err := n.processes.Change(ctx, req.Msg, func(p *bbsv2.LRPDeployment) error {
		return choose(p, req.Msg.GetDefinitionId())
	})
	return apiversion.Respond(&bbsv2.ActivateDefinitionResponse{LrpDeployment: p}, err)
}
