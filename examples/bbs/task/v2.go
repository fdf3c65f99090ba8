package task

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller.dev/apiversion"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// ServiceV2 is the service of v2.
var ServiceV2 = bbsv2.File_bbs_v2_task_proto.Services().ByName("TaskService")

func newV2(store vrunner.Store) tasks[*bbsv2.Task] {
	return newTasks(store, forms[*bbsv2.Task]{
		get: getV2, set: setV2,
		request: func(guid string) proto.Message { return &bbsv2.GetTaskRequest{TaskGuid: guid} },
		payload: func(m *bbsv2.Task) payload {
			return payload{m.TaskGuid, m.Domain, m.Failed, m.FailureReason, m.Result, m.GetDefinition().GetAnnotation(), millisOf(whenOf(m.CreateTime))}
		},
	})
}

func getV2(m *bbsv2.Task) Task {
	return Task{
		State: State(m.State), Cell: m.CellId, Outcome: Outcome{m.Failed, m.FailureReason, m.Result},
		Created: whenOf(m.CreateTime), Updated: whenOf(m.UpdateTime), Done: whenOf(m.CompleteTime),
		Attempts: m.CallbackAttempts, Rejections: m.RejectionCount, RejectionReason: m.RejectionReason, URL: m.GetDefinition().GetCompletionCallbackUrl(),
	}
}

func setV2(m *bbsv2.Task, t Task) {
	m.State, m.CellId, m.Failed, m.FailureReason, m.Result = string(t.State), t.Cell, t.Outcome.Failed, t.Outcome.Reason, t.Outcome.Result
	m.CreateTime, m.UpdateTime, m.CompleteTime, m.CallbackAttempts = stampOf(t.Created), stampOf(t.Updated), stampOf(t.Done), t.Attempts
	m.RejectionCount, m.RejectionReason = t.Rejections, t.RejectionReason
}

// stampOf and whenOf convert between times and v2's timestamps; none is the zero time.
func stampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func whenOf(s *timestamppb.Timestamp) time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.AsTime()
}

// handlerV2 serves the v2 methods that are not standard methods of a table.
type handlerV2 struct {
	bbsv2connect.UnimplementedTaskServiceHandler
	tasks tasks[*bbsv2.Task]
}

// NativeV2 returns the v2 API of tasks over v2 data, and its mount path.
func NativeV2(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	ts := newV2(store)
	_, own := bbsv2connect.NewTaskServiceHandler(handlerV2{tasks: ts}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: ServiceV2, Tables: []resource.Standard{ts.table}, Own: own, Except: []string{"DeleteTask"}, Options: opts})
}

func (h handlerV2) DesireTask(ctx context.Context, req *connect.Request[bbsv2.DesireTaskRequest]) (*connect.Response[bbsv2.DesireTaskResponse], error) {
	t := &bbsv2.Task{TaskGuid: req.Msg.GetTaskGuid(), Domain: req.Msg.GetDomain(), Definition: req.Msg.GetDefinition()}
	t, err := h.tasks.insert(ctx, t, t.Domain, t.Definition)
	return apiversion.Respond(&bbsv2.DesireTaskResponse{Task: t}, err)
}

func (h handlerV2) StartTask(ctx context.Context, req *connect.Request[bbsv2.StartTaskRequest]) (*connect.Response[bbsv2.StartTaskResponse], error) {
	t, started, err := h.tasks.start(ctx, req.Msg)
	return apiversion.Respond(&bbsv2.StartTaskResponse{Task: t, ShouldStart: started}, err)
}

func (h handlerV2) CompleteTask(ctx context.Context, req *connect.Request[bbsv2.CompleteTaskRequest]) (*connect.Response[bbsv2.CompleteTaskResponse], error) {
	t, err := h.tasks.complete(ctx, req.Msg)
	return apiversion.Respond(&bbsv2.CompleteTaskResponse{Task: t}, err)
}

func (h handlerV2) FailTask(ctx context.Context, req *connect.Request[bbsv2.FailTaskRequest]) (*connect.Response[bbsv2.FailTaskResponse], error) {
	t, err := h.tasks.fail(ctx, req.Msg)
	return apiversion.Respond(&bbsv2.FailTaskResponse{Task: t}, err)
}

func (h handlerV2) RejectTask(ctx context.Context, req *connect.Request[bbsv2.RejectTaskRequest]) (*connect.Response[bbsv2.RejectTaskResponse], error) {
	t, err := h.tasks.change(ctx, req.Msg, func(t *Task, now time.Time) error { return t.Reject(bounded(req.Msg.GetRejectionReason()), now) })
	return apiversion.Respond(&bbsv2.RejectTaskResponse{Task: t}, err)
}

func (h handlerV2) CancelTask(ctx context.Context, req *connect.Request[bbsv2.CancelTaskRequest]) (*connect.Response[bbsv2.CancelTaskResponse], error) {
	t, err := h.tasks.cancel(ctx, req.Msg)
	return apiversion.Respond(&bbsv2.CancelTaskResponse{Task: t}, err)
}

func (h handlerV2) ResolvingTask(ctx context.Context, req *connect.Request[bbsv2.ResolvingTaskRequest]) (*connect.Response[bbsv2.ResolvingTaskResponse], error) {
	t, err := h.tasks.resolving(ctx, req.Msg)
	return apiversion.Respond(&bbsv2.ResolvingTaskResponse{Task: t}, err)
}

func (h handlerV2) DeleteTask(ctx context.Context, req *connect.Request[bbsv2.DeleteTaskRequest]) (*connect.Response[bbsv2.DeleteTaskResponse], error) {
	return apiversion.Respond(&bbsv2.DeleteTaskResponse{}, h.tasks.delete(ctx, req.Msg))
}
