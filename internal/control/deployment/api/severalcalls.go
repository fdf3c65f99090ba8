package api

import (
	"context"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// Each method goes to the Service of the deployment that its request names. Calls that name none, such
// as those of rollouts, are about the whole coordination store: any Service answers.

var _ dbcontrollerv1connect.DeploymentServiceHandler = (*Several)(nil)

// GetDeployment implements the API.
func (v *Several) GetDeployment(ctx context.Context, req *connect.Request[pb.GetDeploymentRequest]) (*connect.Response[pb.Deployment], error) {
	ctx, s, err := v.long(ctx, req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.GetDeployment(ctx, req)
}

// ListDeployments implements the API.
func (v *Several) ListDeployments(ctx context.Context, req *connect.Request[pb.ListDeploymentsRequest]) (*connect.Response[pb.ListDeploymentsResponse], error) {
	return v.any().ListDeployments(ctx, req)
}

// CreateDeployment implements the API.
func (v *Several) CreateDeployment(ctx context.Context, req *connect.Request[pb.CreateDeploymentRequest]) (*connect.Response[pb.CreateDeploymentResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.CreateDeployment(ctx, req)
}

// RemoveDeployment implements the API.
func (v *Several) RemoveDeployment(ctx context.Context, req *connect.Request[pb.RemoveDeploymentRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.RemoveDeployment(ctx, req)
}

// BeginUpgrade implements the API.
func (v *Several) BeginUpgrade(ctx context.Context, req *connect.Request[pb.BeginUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.BeginUpgrade(ctx, req)
}

// AbortUpgrade implements the API.
func (v *Several) AbortUpgrade(ctx context.Context, req *connect.Request[pb.AbortUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.AbortUpgrade(ctx, req)
}

// Switch implements the API.
func (v *Several) Switch(ctx context.Context, req *connect.Request[pb.SwitchRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.Switch(ctx, req)
}

// AcceptBreaches implements the API.
func (v *Several) AcceptBreaches(ctx context.Context, req *connect.Request[pb.AcceptBreachesRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.AcceptBreaches(ctx, req)
}

// Repair implements the API.
func (v *Several) Repair(ctx context.Context, req *connect.Request[pb.RepairRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.Repair(ctx, req)
}

// DecideRestored implements the API.
func (v *Several) DecideRestored(ctx context.Context, req *connect.Request[pb.DecideRestoredRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.DecideRestored(ctx, req)
}

// SetPolicy implements the API.
func (v *Several) SetPolicy(ctx context.Context, req *connect.Request[pb.SetPolicyRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.SetPolicy(ctx, req)
}

// SetPace implements the API.
func (v *Several) SetPace(ctx context.Context, req *connect.Request[pb.SetPaceRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.SetPace(ctx, req)
}

// Plan implements the API.
func (v *Several) Plan(ctx context.Context, req *connect.Request[pb.PlanRequest]) (*connect.Response[pb.PlanReport], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.Plan(ctx, req)
}

// StreamPlan implements the API.
func (v *Several) StreamPlan(ctx context.Context, req *connect.Request[pb.PlanRequest], stream *connect.ServerStream[pb.PlanResponse]) error {
	ctx, s, err := v.long(ctx, req.Msg.Name)
	if err != nil {
		return err
	}
	return s.StreamPlan(ctx, req, stream)
}

// Rehearse implements the API.
func (v *Several) Rehearse(ctx context.Context, req *connect.Request[pb.RehearseRequest], stream *connect.ServerStream[pb.RehearseResponse]) error {
	ctx, s, err := v.long(ctx, req.Msg.Name)
	if err != nil {
		return err
	}
	return s.Rehearse(ctx, req, stream)
}

// Complete implements the API.
func (v *Several) Complete(ctx context.Context, req *connect.Request[pb.CompleteRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.Complete(ctx, req)
}

// EstimateLoss implements the API.
func (v *Several) EstimateLoss(ctx context.Context, req *connect.Request[pb.EstimateLossRequest], stream *connect.ServerStream[pb.EstimateLossResponse]) error {
	ctx, s, err := v.long(ctx, req.Msg.Name)
	if err != nil {
		return err
	}
	return s.EstimateLoss(ctx, req, stream)
}

// ListUpdates implements the API.
func (v *Several) ListUpdates(ctx context.Context, req *connect.Request[pb.ListUpdatesRequest]) (*connect.Response[pb.ListUpdatesResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.ListUpdates(ctx, req)
}

// BeginUpdate implements the API.
func (v *Several) BeginUpdate(ctx context.Context, req *connect.Request[pb.BeginUpdateRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.BeginUpdate(ctx, req)
}

// CancelUpdate implements the API.
func (v *Several) CancelUpdate(ctx context.Context, req *connect.Request[pb.CancelUpdateRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.CancelUpdate(ctx, req)
}

// WatchDeployment implements the API.
func (v *Several) WatchDeployment(ctx context.Context, req *connect.Request[pb.WatchDeploymentRequest], stream *connect.ServerStream[pb.Deployment]) error {
	ctx, s, err := v.long(ctx, req.Msg.Name)
	if err != nil {
		return err
	}
	return s.WatchDeployment(ctx, req, stream)
}

// ListParked implements the API.
func (v *Several) ListParked(ctx context.Context, req *connect.Request[pb.ListParkedRequest]) (*connect.Response[pb.ListParkedResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.ListParked(ctx, req)
}

// WaiveParked implements the API.
func (v *Several) WaiveParked(ctx context.Context, req *connect.Request[pb.WaiveParkedRequest]) (*connect.Response[pb.ParkedRecord], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.WaiveParked(ctx, req)
}

// WaiveKind implements the API.
func (v *Several) WaiveKind(ctx context.Context, req *connect.Request[pb.WaiveKindRequest]) (*connect.Response[pb.WaiveKindResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.WaiveKind(ctx, req)
}

// Verify implements the API.
func (v *Several) Verify(ctx context.Context, req *connect.Request[pb.VerifyRequest], stream *connect.ServerStream[pb.VerifyResponse]) error {
	ctx, s, err := v.long(ctx, req.Msg.Name)
	if err != nil {
		return err
	}
	return s.Verify(ctx, req, stream)
}

// TryTransform implements the API.
func (v *Several) TryTransform(ctx context.Context, req *connect.Request[pb.TryTransformRequest]) (*connect.Response[pb.TryTransformResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.TryTransform(ctx, req)
}

// GetVersion implements the API.
func (v *Several) GetVersion(ctx context.Context, req *connect.Request[pb.GetVersionRequest]) (*connect.Response[pb.Version], error) {
	return v.any().GetVersion(ctx, req)
}

// BeginRollout implements the API.
func (v *Several) BeginRollout(ctx context.Context, req *connect.Request[pb.BeginRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	return v.any().BeginRollout(ctx, req)
}

// GetRollout implements the API.
func (v *Several) GetRollout(ctx context.Context, req *connect.Request[pb.GetRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	return v.any().GetRollout(ctx, req)
}

// ListRollouts implements the API.
func (v *Several) ListRollouts(ctx context.Context, req *connect.Request[pb.ListRolloutsRequest]) (*connect.Response[pb.ListRolloutsResponse], error) {
	return v.any().ListRollouts(ctx, req)
}

// ChangeRollout implements the API.
func (v *Several) ChangeRollout(ctx context.Context, req *connect.Request[pb.ChangeRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	return v.any().ChangeRollout(ctx, req)
}

// ForgetRollout implements the API.
func (v *Several) ForgetRollout(ctx context.Context, req *connect.Request[pb.ForgetRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	return v.any().ForgetRollout(ctx, req)
}

// RegisterClient implements the API.
func (v *Several) RegisterClient(ctx context.Context, req *connect.Request[pb.RegisterClientRequest]) (*connect.Response[pb.RegisterClientResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.RegisterClient(ctx, req)
}

// DeregisterClient implements the API.
func (v *Several) DeregisterClient(ctx context.Context, req *connect.Request[pb.DeregisterClientRequest]) (*connect.Response[pb.DeregisterClientResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.DeregisterClient(ctx, req)
}

// AckHold implements the API.
func (v *Several) AckHold(ctx context.Context, req *connect.Request[pb.AckHoldRequest]) (*connect.Response[pb.AckHoldResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.AckHold(ctx, req)
}

// GetLocation implements the API.
func (v *Several) GetLocation(ctx context.Context, req *connect.Request[pb.GetLocationRequest]) (*connect.Response[pb.Location], error) {
	ctx, s, err := v.long(ctx, req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.GetLocation(ctx, req)
}

// GetSizes implements the API.
func (v *Several) GetSizes(ctx context.Context, req *connect.Request[pb.GetSizesRequest]) (*connect.Response[pb.GetSizesResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.GetSizes(ctx, req)
}

// SampleRecord implements the API.
func (v *Several) SampleRecord(ctx context.Context, req *connect.Request[pb.SampleRecordRequest]) (*connect.Response[pb.SampleRecordResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.SampleRecord(ctx, req)
}

// ListSamples implements the API.
func (v *Several) ListSamples(ctx context.Context, req *connect.Request[pb.ListSamplesRequest]) (*connect.Response[pb.ListSamplesResponse], error) {
	s, err := v.of(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return s.ListSamples(ctx, req)
}
