package api

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Planner plans upgrades of the deployment. It changes nothing.
type Planner interface {
	// Plan plans an upgrade to a version; empty means the next one. It reports its work with
	// progress.
	Plan(ctx context.Context, targetVersion string, progress func(Work)) (*pb.PlanReport, error)
}

// Rehearser runs a whole upgrade into scratch namespaces and drops them. Calls do not overlap.
type Rehearser interface {
	// Rehearse reports its work with progress.
	Rehearse(ctx context.Context, req *pb.RehearseRequest, progress func(Work)) (*pb.RehearseReport, error)
}

// Updates provides the data updates that this binary contains.
type Updates interface {
	Tasks() []*pb.ListUpdatesResponse_Task
	// Task returns an update for BeginUpdate, with Name, Version, Kind and Hash. The error lists
	// the available updates, for an operator.
	Task(name string) (upgradestate.Update, error)
}

// Loss counts the records that a rollback to the snapshot would lose. It changes nothing, and calls
// do not overlap.
type Loss interface {
	// EstimateLoss reports the number of compared groups with progress.
	EstimateLoss(ctx context.Context, progress func(compared int64)) (*pb.LossReport, error)
}

// ElsewhereError refuses a request that only a controller can answer that is configured for the
// deployment.
type ElsewhereError struct{ refused *upgradestate.RefusedError }

func (e *ElsewhereError) Error() string { return e.refused.Error() }

func (e *ElsewhereError) Unwrap() error { return e.refused }

// cannot returns the error of a controller that lacks a hook, or is configured for another
// deployment.
func (v *Service) cannot(what string, s *deployment.Store, has bool) error {
	switch {
	case s != v.own:
		return &ElsewhereError{&upgradestate.RefusedError{Reason: what + ": this controller is not configured for " + s.Name() + ": ask a controller that is"}}
	case !has:
		return refuse(what + ": this controller cannot: ask a controller that is configured for it")
	}
	return nil
}

func (v *Service) Plan(ctx context.Context, req *connect.Request[pb.PlanRequest]) (*connect.Response[pb.PlanReport], error) {
	report, err := v.plan(ctx, req.Msg, func(Work) {})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(report), nil
}

func (v *Service) StreamPlan(ctx context.Context, req *connect.Request[pb.PlanRequest], stream *connect.ServerStream[pb.PlanResponse]) error {
	var report *pb.PlanReport
	err := v.reported(ctx, func(w *pb.WorkProgress) error {
		return stream.Send(&pb.PlanResponse{Work: w})
	}, func(ctx context.Context, say func(Work)) (err error) {
		report, err = v.plan(ctx, req.Msg, say)
		return err
	})
	if err != nil {
		return err
	}
	return stream.Send(&pb.PlanResponse{Report: report})
}

func (v *Service) plan(ctx context.Context, req *pb.PlanRequest, progress func(Work)) (*pb.PlanReport, error) {
	s, err := v.store(req.Name)
	if err != nil {
		return nil, err
	}
	if err := v.cannot("plan", s, v.cfg.Planner != nil); err != nil {
		return nil, err
	}
	// Fail before the plan begins if the deployment does not exist.
	if _, err := s.Get(ctx); err != nil {
		return nil, err
	}
	report, err := v.cfg.Planner.Plan(ctx, req.TargetVersion, progress)
	if err != nil {
		return nil, verbError("plan", err)
	}
	return report, nil
}

// maxRehearsalSeconds bounds the time limit in a request.
const maxRehearsalSeconds = 366 * 24 * 60 * 60

func (v *Service) Rehearse(ctx context.Context, req *connect.Request[pb.RehearseRequest], stream *connect.ServerStream[pb.RehearseResponse]) error {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return err
	}
	if req.Msg.Sample < 0 {
		return invalid("sample", itoa(req.Msg.Sample), "a number of records, or 0 for 1000")
	}
	if n := req.Msg.LimitSeconds; n < 0 || n > maxRehearsalSeconds {
		return invalid("limit_seconds", itoa(n), "a number of seconds up to a year, or 0 for a day")
	}
	if err := v.cannot("rehearse", s, v.cfg.Rehearser != nil); err != nil {
		return err
	}
	if _, err := s.Get(ctx); err != nil {
		return err
	}
	// A rehearsal loads the databases, so run one at a time.
	if !v.rehearsing.TryLock() {
		return refuse("rehearse: a rehearsal runs already: wait until it ends")
	}
	defer v.rehearsing.Unlock()
	var report *pb.RehearseReport
	// Only the last message carries the report, so a broken stream has none.
	err = v.reported(ctx, func(w *pb.WorkProgress) error {
		return stream.Send(&pb.RehearseResponse{Progress: workText(w), Work: w})
	}, func(ctx context.Context, say func(Work)) (err error) {
		report, err = v.cfg.Rehearser.Rehearse(ctx, req.Msg, say)
		return err
	})
	if err != nil {
		return verbError("rehearse", err)
	}
	return stream.Send(&pb.RehearseResponse{Report: report})
}

func (v *Service) ListUpdates(_ context.Context, req *connect.Request[pb.ListUpdatesRequest]) (*connect.Response[pb.ListUpdatesResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	if err := v.cannot("list updates", s, v.cfg.Updates != nil); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.ListUpdatesResponse{Tasks: v.cfg.Updates.Tasks()}), nil
}

// verbError puts the verb before a hook's error, unless it is a refusal, which has one. Errors of
// hooks are refusals about the deployment or its databases, except cancelled calls and unavailable
// services.
func verbError(what string, err error) error {
	var refused *upgradestate.RefusedError
	if errors.As(err, &refused) {
		return err
	}
	for _, passing := range []error{errStopping, context.Canceled, context.DeadlineExceeded, coord.ErrUnknown, record.ErrUnavailable, deployment.ErrNotFound, deployment.ErrFormat, deployment.ErrCorrupt} {
		if errors.Is(err, passing) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return refuse(what + ": " + err.Error())
}
