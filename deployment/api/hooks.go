package api

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/deployment"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Planner says what an upgrade of the deployment would need and do. It changes nothing.
type Planner interface {
	// Plan plans for a version; empty means the next one. It reports what it is about with
	// progress.
	Plan(ctx context.Context, targetVersion string, progress func(Work)) (*pb.PlanReport, error)
}

// Rehearser does a whole upgrade into scratch namespaces and throws them away. It is
// called once at a time.
type Rehearser interface {
	// Rehearse reports what it is about with progress.
	Rehearse(ctx context.Context, req *pb.RehearseRequest, progress func(Work)) (*pb.RehearseReport, error)
}

// Updates are the data updates that this binary has.
type Updates interface {
	Tasks() []*pb.ListUpdatesResponse_Task
	// Task is an update as BeginUpdate wants it, with Name, Version, Kind and Hash. The
	// error says, for an operator, which ones there are.
	Task(name string) (upgradestate.Update, error)
}

// Loss counts what a rollback to the snapshot would lose. It changes nothing, and is
// called once at a time.
type Loss interface {
	// EstimateLoss reports the number of groups compared with progress.
	EstimateLoss(ctx context.Context, progress func(compared int64)) (*pb.LossReport, error)
}

// cannot is what a controller says that lacks a hook, or is configured for another deployment.
func (v *Service) cannot(what string, s *deployment.Store, has bool) error {
	switch {
	case s != v.own:
		return refuse(what + ": this controller is not configured for " + s.Name() + ": ask one that is")
	case !has:
		return refuse(what + ": this controller cannot: ask one that is configured for it")
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
	if _, err := s.Get(ctx); err != nil {
		return nil, err
	}
	report, err := v.cfg.Planner.Plan(ctx, req.TargetVersion, progress)
	if err != nil {
		return nil, verbError("plan", err)
	}
	return report, nil
}

// maxRehearsalSeconds bounds what a caller may ask for.
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
	if !v.rehearsing.TryLock() {
		return refuse("rehearse: a rehearsal runs already: wait for its end")
	}
	defer v.rehearsing.Unlock()
	var report *pb.RehearseReport
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

// verbError gives a hook's error the verb before it; a refusal has it already. What a hook
// says is about the deployment or its databases, unless the call ended or one of them is away.
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
