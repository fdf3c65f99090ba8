package bbs

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/converge"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

type instancesV1 = instances[*bbsv1.ActualLRPGroup, *bbsv1.Cell]

func newInstancesV1(store vrunner.Store) instancesV1 {
	return newInstances(store, processesV1(store), forms[*bbsv1.ActualLRPGroup, *bbsv1.Cell]{
		slot: slotV1, set: setSlotV1,
		group: func(guid string, k converge.Key) *bbsv1.ActualLRPGroup {
			return &bbsv1.ActualLRPGroup{Name: converge.Name(guid, k), ProcessGuid: guid, Index: int32(k.Index), DefinitionId: definitionName(guid, k.Definition)} //nolint:gosec // index is below maxInstances
		},
		request: func(name string) proto.Message { return &bbsv1.RetireActualLRPRequest{Name: name} },
		cell:    func(id string) *bbsv1.Cell { return &bbsv1.Cell{CellId: id} },
		seen:    func(c *bbsv1.Cell, at time.Time, rep string) { c.SeenMs, c.RepUrl = millisOf(at), rep },
		seenAt:  func(c *bbsv1.Cell) (string, time.Time) { return c.CellId, timeOf(c.SeenMs) },
		rep:     (*bbsv1.Cell).GetRepUrl,
	})
}

// slotV1 reads a slot from v1 data.
func slotV1(g *bbsv1.ActualLRPGroup) converge.Slot {
	read := func(i *bbsv1.ActualLRP) *converge.Instance {
		if i == nil {
			return nil
		}
		return &converge.Instance{
			Placement: i.Placement, GUID: i.InstanceGuid, Cell: i.CellId, State: converge.State(i.State), Epoch: i.Epoch,
			Wanted: timeOf(i.WantedMs), Since: timeOf(i.SinceMs), Crashes: i.CrashCount, CrashReason: i.CrashReason,
			PlacementError: i.PlacementError, Retire: i.Retire, GivenUp: i.GivenUp,
		}
	}
	return converge.Slot{Instance: read(g.Instance), Evacuating: read(g.Evacuating)}
}

func setSlotV1(g *bbsv1.ActualLRPGroup, s converge.Slot) {
	write := func(i *converge.Instance) *bbsv1.ActualLRP {
		if i == nil {
			return nil
		}
		return &bbsv1.ActualLRP{
			Placement: i.Placement, InstanceGuid: i.GUID, CellId: i.Cell, State: string(i.State), Epoch: i.Epoch,
			WantedMs: millisOf(i.Wanted), SinceMs: millisOf(i.Since), CrashCount: i.Crashes, CrashReason: i.CrashReason,
			PlacementError: i.PlacementError, Retire: i.Retire, GivenUp: i.GivenUp,
		}
	}
	g.Instance, g.Evacuating = write(s.Instance), write(s.Evacuating)
}

// actualsV1 serves the v1 methods that are not standard methods of a table.
type actualsV1 struct {
	bbsv1connect.UnimplementedActualLRPServiceHandler
	in instancesV1
}

// ActualsV1 returns the v1 API of instances over v1 data, and its mount path.
func ActualsV1(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	in := newInstancesV1(store)
	_, own := bbsv1connect.NewActualLRPServiceHandler(actualsV1{in: in}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: actualServiceV1, Tables: []resource.Standard{in.table}, Own: own, Except: []string{"GetActualLRPGroup"}, Options: opts})
}

func (a actualsV1) GetActualLRPGroup(ctx context.Context, req *connect.Request[bbsv1.GetActualLRPGroupRequest]) (*connect.Response[bbsv1.GetActualLRPGroupResponse], error) {
	g, err := a.in.get(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.GetActualLRPGroupResponse{ActualLrpGroup: g}, err)
}

func (a actualsV1) ClaimActualLRP(ctx context.Context, req *connect.Request[bbsv1.ClaimActualLRPRequest]) (*connect.Response[bbsv1.ActualLRPGroup], error) {
	return apiversion.Respond(a.in.claim(ctx, req.Msg))
}

func (a actualsV1) StartActualLRP(ctx context.Context, req *connect.Request[bbsv1.StartActualLRPRequest]) (*connect.Response[bbsv1.ActualLRPGroup], error) {
	return apiversion.Respond(a.in.start(ctx, req.Msg))
}

func (a actualsV1) CrashActualLRP(ctx context.Context, req *connect.Request[bbsv1.CrashActualLRPRequest]) (*connect.Response[bbsv1.ActualLRPGroup], error) {
	return apiversion.Respond(a.in.crash(ctx, req.Msg))
}

func (a actualsV1) FailActualLRP(ctx context.Context, req *connect.Request[bbsv1.FailActualLRPRequest]) (*connect.Response[bbsv1.ActualLRPGroup], error) {
	return apiversion.Respond(a.in.fail(ctx, req.Msg))
}

func (a actualsV1) RemoveActualLRP(ctx context.Context, req *connect.Request[bbsv1.RemoveActualLRPRequest]) (*connect.Response[bbsv1.ActualLRPGroup], error) {
	return apiversion.Respond(a.in.remove(ctx, req.Msg))
}

func (a actualsV1) EvacuateActualLRP(ctx context.Context, req *connect.Request[bbsv1.EvacuateActualLRPRequest]) (*connect.Response[bbsv1.ActualLRPGroup], error) {
	return apiversion.Respond(a.in.evacuate(ctx, req.Msg))
}

func (a actualsV1) RetireActualLRP(ctx context.Context, req *connect.Request[bbsv1.RetireActualLRPRequest]) (*connect.Response[bbsv1.ActualLRPGroup], error) {
	return apiversion.Respond(a.in.retire(ctx, req.Msg))
}

func (a actualsV1) ReportCell(ctx context.Context, req *connect.Request[bbsv1.ReportCellRequest]) (*connect.Response[bbsv1.ReportCellResponse], error) {
	return apiversion.Respond(&bbsv1.ReportCellResponse{}, a.in.report(ctx, req.Msg))
}
