package bbs

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// nativeV1 serves the v1 methods that are not standard methods of a table.
type nativeV1 struct {
	bbsv1connect.UnimplementedDesiredLRPServiceHandler
	processes *resource.Table[*bbsv1.DesiredLRP]
}

func tableV1(store vrunner.Store) *resource.Table[*bbsv1.DesiredLRP] {
	return resource.New(store, resource.Config[*bbsv1.DesiredLRP]{
		Kind: KindDesiredLRPs, Pattern: pattern, NameField: fieldGUID, MaxID: maxName, Check: checkV1, Within: within,
		Revision: resource.Revision[*bbsv1.DesiredLRP]{
			Field: fieldTag,
			First: func(p *bbsv1.DesiredLRP) { p.ModificationTag = &bbsv1.ModificationTag{Epoch: newEpoch()} },
			Next:  func(p *bbsv1.DesiredLRP) { p.ModificationTag.Index++ },
			Text:  func(p *bbsv1.DesiredLRP) string { return tagText(p.ModificationTag) },
		},
	})
}

// NativeV1 returns the v1 API of processes over v1 data, and its mount path.
func NativeV1(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	table := tableV1(store)
	_, own := bbsv1connect.NewDesiredLRPServiceHandler(nativeV1{processes: table}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: serviceV1, Tables: []resource.Standard{table}, Own: own, Except: []string{"GetDesiredLRP"}, Options: opts})
}

// checkV1 checks a new process. Methods that change a process check their own fields.
func checkV1(_ context.Context, p, before *bbsv1.DesiredLRP) error {
	if before != nil {
		return nil
	}
	if err := checkIdentity(p); err != nil {
		return err
	}
	if p.DefinitionId != nil {
		if err := checkName(fieldDefID, *p.DefinitionId); err != nil {
			return err
		}
		// It would have two forms, and the other version can store one only.
		if *p.DefinitionId == p.ProcessGuid {
			return listing.Invalid(fieldDefID, "is the process guid, which it stands for by itself: leave it out")
		}
	}
	return checkDefinition(fieldDefinition, p.Definition)
}

// GetDesiredLRP is not the table's, because of the definition that the request may name. These data
// have the active one only.
func (n nativeV1) GetDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.GetDesiredLRPRequest]) (*connect.Response[bbsv1.GetDesiredLRPResponse], error) {
	guid, id := req.Msg.GetProcessGuid(), req.Msg.GetDefinitionId()
	if id != "" {
		p, err := n.processes.Find(ctx, guid)
		if err != nil {
			return nil, apiversion.CodeError(err)
		}
		if id != definitionID(guid, p.GetDefinitionId()) {
			return nil, apiversion.CodeError(noDefinition(id))
		}
	}
	p, err := n.processes.Get(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.GetDesiredLRPResponse{DesiredLrp: p}, err)
}

func (n nativeV1) UpdateDesiredLRP(ctx context.Context, req *connect.Request[bbsv1.UpdateDesiredLRPRequest]) (*connect.Response[bbsv1.UpdateDesiredLRPResponse], error) {
	m := req.Msg
	if err := checkMutable(m, m.GetRoutes().GetEntries()); err != nil {
		return nil, err
	}
	replaces := m.GetDefinitionId() != "" || m.Definition != nil
	if replaces {
		if err := checkNewDefinition(m.GetDefinitionId(), m.GetDefinition()); err != nil {
			return nil, err
		}
	}
	p, err := n.processes.Change(ctx, m, func(p *bbsv1.DesiredLRP) error {
		if replaces {
			// These data have no room for the definition before. Its instances run until their
			// successors do, because they need no definition for that.
			if id := definitionID(p.ProcessGuid, p.GetDefinitionId()); m.GetDefinitionId() == id {
				return fmt.Errorf("definition %q: %w", id, record.ErrExists)
			}
			p.DefinitionId, p.Definition = definitionName(p.ProcessGuid, m.GetDefinitionId()), m.GetDefinition()
		}
		// Fields are optional: absent means unchanged, while 0 stops all instances.
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
		return nil
	})
	return apiversion.Respond(&bbsv1.UpdateDesiredLRPResponse{DesiredLrp: p}, err)
}

func (n nativeV1) ListDesiredLRPSchedulingInfos(ctx context.Context, req *connect.Request[bbsv1.ListDesiredLRPSchedulingInfosRequest]) (*connect.Response[bbsv1.ListDesiredLRPSchedulingInfosResponse], error) {
	page, err := n.processes.List(ctx, req.Msg)
	res := &bbsv1.ListDesiredLRPSchedulingInfosResponse{NextPageToken: page.NextPageToken}
	for _, p := range page.Items {
		res.DesiredLrpSchedulingInfos = append(res.DesiredLrpSchedulingInfos, schedulingInfo(p))
	}
	return apiversion.Respond(res, err)
}

func schedulingInfo(p *bbsv1.DesiredLRP) *bbsv1.DesiredLRPSchedulingInfo {
	return &bbsv1.DesiredLRPSchedulingInfo{
		ProcessGuid: p.ProcessGuid, Domain: p.Domain, Instances: p.Instances, Annotation: p.Annotation, ModificationTag: p.ModificationTag,
		Rootfs: p.GetDefinition().GetRootfs(), MemoryMb: p.GetDefinition().GetMemoryMb(), DiskMb: p.GetDefinition().GetDiskMb(),
	}
}
