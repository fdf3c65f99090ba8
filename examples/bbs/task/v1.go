package task

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// ServiceV1 is the service of v1.
var ServiceV1 = bbsv1.File_bbs_v1_task_proto.Services().ByName("TaskService")

func newV1(store vrunner.Store) tasks[*bbsv1.Task] {
	return newTasks(store, forms[*bbsv1.Task]{
		get: getV1, set: setV1,
		request: func(guid string) proto.Message { return &bbsv1.GetTaskRequest{TaskGuid: guid} },
		payload: func(m *bbsv1.Task) payload {
			return payload{m.TaskGuid, m.Domain, m.Failed, m.FailureReason, m.Result, m.GetDefinition().GetAnnotation(), m.CreatedMs}
		},
	}, "created_ms", "updated_ms", "completed_ms")
}

func getV1(m *bbsv1.Task) Task {
	return Task{
		State: State(m.State), Cell: m.CellId, Outcome: Outcome{m.Failed, m.FailureReason, m.Result},
		Created: timeOf(m.CreatedMs), Updated: timeOf(m.UpdatedMs), Done: timeOf(m.CompletedMs),
		Attempts: m.CallbackAttempts, URL: m.GetDefinition().GetCompletionCallbackUrl(),
	}
}

func setV1(m *bbsv1.Task, t Task) {
	m.State, m.CellId, m.Failed, m.FailureReason, m.Result = string(t.State), t.Cell, t.Outcome.Failed, t.Outcome.Reason, t.Outcome.Result
	m.CreatedMs, m.UpdatedMs, m.CompletedMs, m.CallbackAttempts = millisOf(t.Created), millisOf(t.Updated), millisOf(t.Done), t.Attempts
}

// timeOf and millisOf convert between times and v1's milliseconds; 0 is the zero time.
func timeOf(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis).UTC()
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// handlerV1 serves the v1 methods that are not standard methods of a table.
type handlerV1 struct {
	bbsv1connect.UnimplementedTaskServiceHandler
	tasks tasks[*bbsv1.Task]
}

// NativeV1 returns the v1 API of tasks over v1 data, and its mount path.
func NativeV1(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	ts := newV1(store)
	_, own := bbsv1connect.NewTaskServiceHandler(handlerV1{tasks: ts}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: ServiceV1, Tables: []resource.Standard{ts.table}, Own: own, Except: []string{"DeleteTask"}, Options: opts})
}

func (h handlerV1) DesireTask(ctx context.Context, req *connect.Request[bbsv1.DesireTaskRequest]) (*connect.Response[bbsv1.DesireTaskResponse], error) {
	t := &bbsv1.Task{TaskGuid: req.Msg.GetTaskGuid(), Domain: req.Msg.GetDomain(), Definition: req.Msg.GetDefinition()}
	t, err := h.tasks.insert(ctx, t, t.Domain, t.Definition)
	return apiversion.Respond(&bbsv1.DesireTaskResponse{Task: t}, err)
}

func (h handlerV1) StartTask(ctx context.Context, req *connect.Request[bbsv1.StartTaskRequest]) (*connect.Response[bbsv1.StartTaskResponse], error) {
	t, started, err := h.tasks.start(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.StartTaskResponse{Task: t, ShouldStart: started}, err)
}

func (h handlerV1) CompleteTask(ctx context.Context, req *connect.Request[bbsv1.CompleteTaskRequest]) (*connect.Response[bbsv1.CompleteTaskResponse], error) {
	t, err := h.tasks.complete(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.CompleteTaskResponse{Task: t}, err)
}

func (h handlerV1) FailTask(ctx context.Context, req *connect.Request[bbsv1.FailTaskRequest]) (*connect.Response[bbsv1.FailTaskResponse], error) {
	t, err := h.tasks.fail(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.FailTaskResponse{Task: t}, err)
}

func (h handlerV1) CancelTask(ctx context.Context, req *connect.Request[bbsv1.CancelTaskRequest]) (*connect.Response[bbsv1.CancelTaskResponse], error) {
	t, err := h.tasks.cancel(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.CancelTaskResponse{Task: t}, err)
}

func (h handlerV1) ResolvingTask(ctx context.Context, req *connect.Request[bbsv1.ResolvingTaskRequest]) (*connect.Response[bbsv1.ResolvingTaskResponse], error) {
	t, err := h.tasks.resolving(ctx, req.Msg)
	return apiversion.Respond(&bbsv1.ResolvingTaskResponse{Task: t}, err)
}

func (h handlerV1) DeleteTask(ctx context.Context, req *connect.Request[bbsv1.DeleteTaskRequest]) (*connect.Response[bbsv1.DeleteTaskResponse], error) {
	return apiversion.Respond(&bbsv1.DeleteTaskResponse{}, h.tasks.delete(ctx, req.Msg))
}
