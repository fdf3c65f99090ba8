package bbs

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/converge"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

type instancesV2 = instances[*bbsv2.ActualLRP, *bbsv2.Cell]

func newInstancesV2(store vrunner.Store) instancesV2 {
	return newInstances(store, processesV2(store), forms[*bbsv2.ActualLRP, *bbsv2.Cell]{
		slot: slotV2, set: setSlotV2,
		group: func(guid string, k converge.Key) *bbsv2.ActualLRP {
			return &bbsv2.ActualLRP{Name: converge.Name(guid, k), ProcessGuid: guid, Index: int32(k.Index), DefinitionId: k.Definition} //nolint:gosec // index is below maxInstances
		},
		request: func(name string) proto.Message { return &bbsv2.RetireActualLRPRequest{Name: name} },
		cell:    func(id string) *bbsv2.Cell { return &bbsv2.Cell{CellId: id} },
		seen:    func(c *bbsv2.Cell, at time.Time, rep string) { c.SeenMs, c.RepUrl = millisOf(at), rep },
		seenAt:  func(c *bbsv2.Cell) (string, time.Time) { return c.CellId, timeOf(c.SeenMs) },
		rep:     (*bbsv2.Cell).GetRepUrl,
	})
}

// slotV2 reads a slot from v2 data.
func slotV2(g *bbsv2.ActualLRP) converge.Slot {
	read := func(i *bbsv2.Instance) *converge.Instance {
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

func setSlotV2(g *bbsv2.ActualLRP, s converge.Slot) {
	write := func(i *converge.Instance) *bbsv2.Instance {
		if i == nil {
			return nil
		}
		return &bbsv2.Instance{
			Placement: i.Placement, InstanceGuid: i.GUID, CellId: i.Cell, State: string(i.State), Epoch: i.Epoch,
			WantedMs: millisOf(i.Wanted), SinceMs: millisOf(i.Since), CrashCount: i.Crashes, CrashReason: i.CrashReason,
			PlacementError: i.PlacementError, Retire: i.Retire, GivenUp: i.GivenUp,
		}
	}
	g.Instance, g.Evacuating = write(s.Instance), write(s.Evacuating)
}

// actualsV2 serves the v2 methods that are not standard methods of a table.
type actualsV2 struct {
	bbsv2connect.UnimplementedActualLRPServiceHandler
	in instancesV2
}

// ActualsV2 returns the v2 API of instances over v2 data, and its mount path.
func ActualsV2(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	in := newInstancesV2(store)
	_, own := bbsv2connect.NewActualLRPServiceHandler(actualsV2{in: in}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: actualServiceV2, Tables: []resource.Standard{in.table}, Own: own, Except: []string{"GetActualLRP"}, Options: opts})
}

func (a actualsV2) GetActualLRP(ctx context.Context, req *connect.Request[bbsv2.GetActualLRPRequest]) (*connect.Response[bbsv2.GetActualLRPResponse], error) {
	g, err := a.in.get(ctx, req.Msg)
	return apiversion.Respond(&bbsv2.GetActualLRPResponse{ActualLrp: g}, err)
}

func (a actualsV2) ClaimActualLRP(ctx context.Context, req *connect.Request[bbsv2.ClaimActualLRPRequest]) (*connect.Response[bbsv2.ActualLRP], error) {
	return apiversion.Respond(a.in.claim(ctx, req.Msg))
}

func (a actualsV2) StartActualLRP(ctx context.Context, req *connect.Request[bbsv2.StartActualLRPRequest]) (*connect.Response[bbsv2.ActualLRP], error) {
	return apiversion.Respond(a.in.start(ctx, req.Msg))
}

func (a actualsV2) CrashActualLRP(ctx context.Context, req *connect.Request[bbsv2.CrashActualLRPRequest]) (*connect.Response[bbsv2.ActualLRP], error) {
	return apiversion.Respond(a.in.crash(ctx, req.Msg))
}

func (a actualsV2) FailActualLRP(ctx context.Context, req *connect.Request[bbsv2.FailActualLRPRequest]) (*connect.Response[bbsv2.ActualLRP], error) {
	return apiversion.Respond(a.in.fail(ctx, req.Msg))
}

func (a actualsV2) RemoveActualLRP(ctx context.Context, req *connect.Request[bbsv2.RemoveActualLRPRequest]) (*connect.Response[bbsv2.ActualLRP], error) {
	return apiversion.Respond(a.in.remove(ctx, req.Msg))
}

func (a actualsV2) EvacuateActualLRP(ctx context.Context, req *connect.Request[bbsv2.EvacuateActualLRPRequest]) (*connect.Response[bbsv2.ActualLRP], error) {
	return apiversion.Respond(a.in.evacuate(ctx, req.Msg))
}

func (a actualsV2) RetireActualLRP(ctx context.Context, req *connect.Request[bbsv2.RetireActualLRPRequest]) (*connect.Response[bbsv2.ActualLRP], error) {
	return apiversion.Respond(a.in.retire(ctx, req.Msg))
}

func (a actualsV2) ReportCell(ctx context.Context, req *connect.Request[bbsv2.ReportCellRequest]) (*connect.Response[bbsv2.ReportCellResponse], error) {
	return apiversion.Respond(&bbsv2.ReportCellResponse{}, a.in.report(ctx, req.Msg))
}
