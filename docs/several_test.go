package docs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev"
	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v1/tasksv1connect"
	tasksv2 "dbcontroller.dev/examples/starter/service/gen/tasks/v2"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v2/tasksv2connect"
	"dbcontroller.dev/examples/starter/service/tasks"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// archiving is a table by which v1's DeleteTask is two requests to v2, which keeps what was
// done: one makes a task in the archive, one deletes.
func archiving() (*apiversion.Table, error) {
	const why = "this example is about deletes"
	return apiversion.NewTable(apiversion.Config{
		Old: tasksv1.File_tasks_v1_tasks_proto.Services().ByName("TaskService"),
		New: tasksv2.File_tasks_v2_tasks_proto.Services().ByName("TaskService"),
		Methods: []apiversion.Method{
			{Old: "DeleteTask", Requests: archive, Responses: archived},
			{Old: "CreateTask", Discontinued: why}, {Old: "GetTask", Discontinued: why}, {Old: "ListTasks", Discontinued: why},
			{Old: "UpdateTask", Discontinued: why}, {Old: "WatchTasks", Discontinued: why},
		},
	})
}

func archive(_ context.Context, old proto.Message) ([]apiversion.Call, error) {
	name := old.(*dynamicpb.Message).Get(old.ProtoReflect().Descriptor().Fields().ByName("name")).String()
	id := strings.NewReplacer("projects/", "", "/tasks/", "-").Replace(name)
	return []apiversion.Call{
		{Method: "CreateTask", Request: &tasksv2.CreateTaskRequest{Parent: "projects/archive", TaskId: id, Task: &tasksv2.Task{Summary: "was " + name}}},
		{Method: "DeleteTask", Request: &tasksv2.DeleteTaskRequest{Name: name}},
	}, nil
}

// archived leaves the response as it is: v1's has no fields.
func archived(context.Context, proto.Message, []proto.Message, *dynamicpb.Message) error { return nil }

// overV2 serves v1 over the data of v2 by the table.
func overV2(table *apiversion.Table, data dbcontroller.Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	joined, together := vrunner.Join(data)
	tasks.Service().Versions[1].Mount(mux, joined, opts...)
	mux.Handle(table.Path(), apiversion.NewHandler(table, mux, apiversion.Options{Together: together, Handler: opts}))
	return mux
}

// several is v1 and v2 of the service of that table, over data in memory.
type several struct {
	data *sampletest.Store
	v1   tasksv1connect.TaskServiceClient
	v2   tasksv2connect.TaskServiceClient
}

func serveSeveral(t *testing.T, opts ...connect.HandlerOption) several {
	t.Helper()
	table, err := archiving()
	if err != nil {
		t.Fatal(err)
	}
	data := sampletest.New(t, "tasks")
	s := httptest.NewServer(overV2(table, data, opts...))
	t.Cleanup(s.Close)
	return several{data, tasksv1connect.NewTaskServiceClient(s.Client(), s.URL), tasksv2connect.NewTaskServiceClient(s.Client(), s.URL)}
}

func (s several) make(t *testing.T, id string) {
	t.Helper()
	if _, err := s.v2.CreateTask(t.Context(), connect.NewRequest(&tasksv2.CreateTaskRequest{Parent: "projects/p", TaskId: id, Task: &tasksv2.Task{Summary: id}})); err != nil {
		t.Fatal(err)
	}
}

func (s several) remove(t *testing.T, id string) error {
	t.Helper()
	_, err := s.v1.DeleteTask(t.Context(), connect.NewRequest(&tasksv1.DeleteTaskRequest{Name: "projects/p/tasks/" + id}))
	return err
}

// names are those of all tasks.
func (s several) names(t *testing.T) string {
	t.Helper()
	recs, err := s.data.List(t.Context(), "tasks", "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range recs {
		name, _ := r.Key.Name()
		out = append(out, strings.TrimPrefix(name, "projects/"))
	}
	return strings.Join(out, " ")
}

// TestSeveralRequests: of one old request that becomes two, both are done in one write, or
// neither is, whatever refuses one of them.
func TestSeveralRequests(t *testing.T) {
	t.Parallel()
	s := serveSeveral(t)
	s.make(t, "a")
	s.make(t, "b")
	if err := s.remove(t, "a"); err != nil {
		t.Fatal(err)
	}
	if writes := s.data.Writes(); len(writes) != 3 || len(writes[2]) != 2 {
		t.Errorf("writes %v, want one of two records at last", writes)
	}
	if got, want := s.names(t), "archive/tasks/p-a p/tasks/b"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
	// The second is refused: nothing of the first is there.
	if err := s.remove(t, "a"); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("again: %v", err)
	}
	if err := s.remove(t, "none"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a task that is not there: %v", err)
	}
	// The write is refused: the same, with the reason.
	s.data.BeforeWrite(func([]record.Mutation) error { return record.ErrFenced })
	if err := s.remove(t, "b"); connect.CodeOf(err) != connect.CodeUnavailable || reasonOf(err) != refusal.Fenced {
		t.Errorf("fenced: %v", err)
	}
	// Others delete it in between: all of it is made again, and finds nothing to delete.
	s.data.BeforeWrite(func([]record.Mutation) error {
		s.data.BeforeWrite(nil)
		return s.data.Write(context.Background(), []record.Mutation{{Kind: "tasks", Key: record.StringKey("projects/p/tasks/b")}})
	})
	if err := s.remove(t, "b"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what others delete: %v", err)
	}
	if got, want := s.names(t), "archive/tasks/p-a"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
}

func reasonOf(err error) refusal.Reason {
	reason, _ := refusal.Of(err)
	return reason
}

// asked notes for which procedures it was asked, and refuses one of them.
type asked struct {
	mu         sync.Mutex
	procedures []string
	refuses    string
}

func (a *asked) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		procedure := strings.TrimPrefix(req.Spec().Procedure, "/tasks.")
		a.mu.Lock()
		a.procedures = append(a.procedures, procedure)
		a.mu.Unlock()
		if procedure == a.refuses {
			return nil, connect.NewError(connect.CodePermissionDenied, errors.New("not for you"))
		}
		return next(ctx, req)
	}
}

func (*asked) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (*asked) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// authorized gives an interceptor to all handlers, so that it runs once for each call of a
// client: in front of the procedure that this has called.
func authorized(i connect.Interceptor) connect.HandlerOption {
	return connect.WithInterceptors(apiversion.Once(i))
}

// TestInterceptorsRunOnce: who may call is asked once for a v1 call that becomes two of v2, by
// the name that the client used, and what it refuses has no effect.
func TestInterceptorsRunOnce(t *testing.T) {
	t.Parallel()
	a := &asked{}
	s := serveSeveral(t, authorized(a))
	s.make(t, "a")
	if err := s.remove(t, "a"); err != nil {
		t.Error(err)
	}
	s.make(t, "b")
	a.refuses = "v1.TaskService/DeleteTask"
	if err := s.remove(t, "b"); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("refused: %v", err)
	}
	want := "[v2.TaskService/CreateTask v1.TaskService/DeleteTask v2.TaskService/CreateTask v1.TaskService/DeleteTask]"
	if got := fmt.Sprint(a.procedures); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	if got, want := s.names(t), "archive/tasks/p-a p/tasks/b"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
}
