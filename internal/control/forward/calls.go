package forward

import (
	"context"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// Each method goes to the controllers of the deployment that its request names.

// GetDeployment implements the API. A call that waits is answered here if the deployment is of this
// coordination store, which tells of changes just as fast.
func (h *Handler) GetDeployment(ctx context.Context, req *connect.Request[pb.GetDeploymentRequest]) (*connect.Response[pb.Deployment], error) {
	if req.Msg.WaitRevision != 0 {
		p, err := h.find(ctx, h.callerOf(ctx, req.Header()), req.Msg.Name)
		switch {
		case err != nil:
			return nil, err
		case p == nil || p.region == "":
			return h.local.GetDeployment(ctx, req)
		// Another controller of the region is asked if one does not answer for a while. So the wait ends
		// before, and the caller asks again.
		case req.Msg.TimeoutMs == 0 || req.Msg.TimeoutMs > longestWaitMillis:
			req.Msg.TimeoutMs = longestWaitMillis
		}
	}
	return unary(ctx, h, req, reads, server.GetDeployment, remote.GetDeployment)
}

// longestWaitMillis is the longest time that a forwarded call waits for news.
const longestWaitMillis = 10_000

// RemoveDeployment implements the API.
func (h *Handler) RemoveDeployment(ctx context.Context, req *connect.Request[pb.RemoveDeploymentRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.RemoveDeployment, remote.RemoveDeployment)
}

// BeginUpgrade implements the API.
func (h *Handler) BeginUpgrade(ctx context.Context, req *connect.Request[pb.BeginUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.BeginUpgrade, remote.BeginUpgrade)
}

// AbortUpgrade implements the API.
func (h *Handler) AbortUpgrade(ctx context.Context, req *connect.Request[pb.AbortUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.AbortUpgrade, remote.AbortUpgrade)
}

// Switch implements the API.
func (h *Handler) Switch(ctx context.Context, req *connect.Request[pb.SwitchRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.Switch, remote.Switch)
}

// AcceptBreaches implements the API.
func (h *Handler) AcceptBreaches(ctx context.Context, req *connect.Request[pb.AcceptBreachesRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.AcceptBreaches, remote.AcceptBreaches)
}

// Repair implements the API.
func (h *Handler) Repair(ctx context.Context, req *connect.Request[pb.RepairRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.Repair, remote.Repair)
}

// DecideRestored implements the API.
func (h *Handler) DecideRestored(ctx context.Context, req *connect.Request[pb.DecideRestoredRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.DecideRestored, remote.DecideRestored)
}

// SetPolicy implements the API.
func (h *Handler) SetPolicy(ctx context.Context, req *connect.Request[pb.SetPolicyRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.SetPolicy, remote.SetPolicy)
}

// SetPace implements the API.
func (h *Handler) SetPace(ctx context.Context, req *connect.Request[pb.SetPaceRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.SetPace, remote.SetPace)
}

// Plan implements the API.
func (h *Handler) Plan(ctx context.Context, req *connect.Request[pb.PlanRequest]) (*connect.Response[pb.PlanReport], error) {
	return unary(ctx, h, req, reads, server.Plan, remote.Plan)
}

// Complete implements the API.
func (h *Handler) Complete(ctx context.Context, req *connect.Request[pb.CompleteRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.Complete, remote.Complete)
}

// ListUpdates implements the API.
func (h *Handler) ListUpdates(ctx context.Context, req *connect.Request[pb.ListUpdatesRequest]) (*connect.Response[pb.ListUpdatesResponse], error) {
	return unary(ctx, h, req, reads, server.ListUpdates, remote.ListUpdates)
}

// BeginUpdate implements the API.
func (h *Handler) BeginUpdate(ctx context.Context, req *connect.Request[pb.BeginUpdateRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.BeginUpdate, remote.BeginUpdate)
}

// CancelUpdate implements the API.
func (h *Handler) CancelUpdate(ctx context.Context, req *connect.Request[pb.CancelUpdateRequest]) (*connect.Response[pb.Deployment], error) {
	return unary(ctx, h, req, changes, server.CancelUpdate, remote.CancelUpdate)
}

// ListParked implements the API.
func (h *Handler) ListParked(ctx context.Context, req *connect.Request[pb.ListParkedRequest]) (*connect.Response[pb.ListParkedResponse], error) {
	return unary(ctx, h, req, reads, server.ListParked, remote.ListParked)
}

// WaiveParked implements the API.
func (h *Handler) WaiveParked(ctx context.Context, req *connect.Request[pb.WaiveParkedRequest]) (*connect.Response[pb.ParkedRecord], error) {
	return unary(ctx, h, req, changes, server.WaiveParked, remote.WaiveParked)
}

// WaiveKind implements the API.
func (h *Handler) WaiveKind(ctx context.Context, req *connect.Request[pb.WaiveKindRequest]) (*connect.Response[pb.WaiveKindResponse], error) {
	return unary(ctx, h, req, changes, server.WaiveKind, remote.WaiveKind)
}

// TryTransform implements the API.
func (h *Handler) TryTransform(ctx context.Context, req *connect.Request[pb.TryTransformRequest]) (*connect.Response[pb.TryTransformResponse], error) {
	return unary(ctx, h, req, reads, server.TryTransform, remote.TryTransform)
}

// GetSizes implements the API.
func (h *Handler) GetSizes(ctx context.Context, req *connect.Request[pb.GetSizesRequest]) (*connect.Response[pb.GetSizesResponse], error) {
	return unary(ctx, h, req, reads, server.GetSizes, remote.GetSizes)
}

// SampleRecord implements the API. The controller that has the record decides whether its values may be
// shown.
func (h *Handler) SampleRecord(ctx context.Context, req *connect.Request[pb.SampleRecordRequest]) (*connect.Response[pb.SampleRecordResponse], error) {
	return unary(ctx, h, req, reads, server.SampleRecord, remote.SampleRecord)
}

// ListSamples implements the API.
func (h *Handler) ListSamples(ctx context.Context, req *connect.Request[pb.ListSamplesRequest]) (*connect.Response[pb.ListSamplesResponse], error) {
	return unary(ctx, h, req, reads, server.ListSamples, remote.ListSamples)
}

// StreamPlan implements the API.
func (h *Handler) StreamPlan(ctx context.Context, req *connect.Request[pb.PlanRequest], to *connect.ServerStream[pb.PlanResponse]) error {
	return stream(ctx, h, req, to, reads, server.StreamPlan, remote.StreamPlan)
}

// Rehearse implements the API.
func (h *Handler) Rehearse(ctx context.Context, req *connect.Request[pb.RehearseRequest], to *connect.ServerStream[pb.RehearseResponse]) error {
	return stream(ctx, h, req, to, changes, server.Rehearse, remote.Rehearse)
}

// EstimateLoss implements the API.
func (h *Handler) EstimateLoss(ctx context.Context, req *connect.Request[pb.EstimateLossRequest], to *connect.ServerStream[pb.EstimateLossResponse]) error {
	return stream(ctx, h, req, to, reads, server.EstimateLoss, remote.EstimateLoss)
}

// Verify implements the API.
func (h *Handler) Verify(ctx context.Context, req *connect.Request[pb.VerifyRequest], to *connect.ServerStream[pb.VerifyResponse]) error {
	return stream(ctx, h, req, to, reads, server.Verify, remote.Verify)
}
