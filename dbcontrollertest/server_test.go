package dbcontrollertest_test

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller.dev"
	"dbcontroller.dev/dbcontrollertest"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v1/tasksv1connect"
	tasksv2 "dbcontroller.dev/examples/starter/service/gen/tasks/v2"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v2/tasksv2connect"
	"dbcontroller.dev/examples/starter/service/tasks"
	"dbcontroller.dev/internal/program/server/samples"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSwitch: what clients of both versions write survives upgrades and rollbacks, deletes included, and
// the version that does not know a field does not lose it.
func TestSwitch(t *testing.T) {
	t.Parallel()
	s := dbcontrollertest.Start(t, tasks.Service())
	v1, v2 := tasksv1connect.NewTaskServiceClient(s.Client(), s.URL), tasksv2connect.NewTaskServiceClient(s.Client(), s.URL)
	ctx := t.Context()
	create := func(id string) {
		t.Helper()
		if _, err := v1.CreateTask(ctx, connect.NewRequest(&tasksv1.CreateTaskRequest{Parent: "projects/home", TaskId: id, Task: &tasksv1.Task{Title: id}})); err != nil {
			t.Fatal(err)
		}
	}
	served := func(want string) {
		t.Helper()
		list, err := v1.ListTasks(ctx, connect.NewRequest(&tasksv1.ListTasksRequest{Parent: "projects/home"}))
		if err != nil {
			t.Fatal(err)
		}
		got := list.Header().Get(dbcontroller.VersionHeader) + ":"
		for _, task := range list.Msg.Tasks {
			got += " " + task.Title
		}
		if got != want || s.Active() != want[:2] {
			t.Errorf("%s is active; v1 sees %q, want %q", s.Active(), got, want)
		}
	}
	create("paint")
	create("sweep")
	served("v1: paint sweep")
	s.Switch("v2")
	served("v2: paint sweep")
	create("cook")
	if _, err := v2.UpdateTask(ctx, connect.NewRequest(&tasksv2.UpdateTaskRequest{Task: &tasksv2.Task{
		Name: "projects/home/tasks/paint", Summary: "repaint", Priority: 7, DueTime: timestamppb.New(timestamppb.Now().AsTime().Truncate(1e9)),
	}})); err != nil {
		t.Fatal(err)
	}
	if _, err := v1.DeleteTask(ctx, connect.NewRequest(&tasksv1.DeleteTaskRequest{Name: "projects/home/tasks/sweep"})); err != nil {
		t.Fatal(err)
	}
	s.Switch("v1")
	served("v1: cook repaint")
	create("water")
	s.Switch("v2")
	served("v2: cook repaint water")
	got, err := v2.GetTask(ctx, connect.NewRequest(&tasksv2.GetTaskRequest{Name: "projects/home/tasks/paint"}))
	if err != nil || got.Msg.Priority != 7 {
		t.Errorf("v2 has %v, %v, want priority 7", got, err)
	}
}

// TestWritesGoOn: writes that clients send while versions are switched all succeed, and none is lost.
func TestWritesGoOn(t *testing.T) {
	t.Parallel()
	s := dbcontrollertest.Start(t, tasks.Service())
	v1 := tasksv1connect.NewTaskServiceClient(s.Client(), s.URL)
	done := make(chan error)
	made := 0
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			id := fmt.Sprintf("t%d", made)
			if _, err := v1.CreateTask(t.Context(), connect.NewRequest(&tasksv1.CreateTaskRequest{Parent: "projects/home", TaskId: id, Task: &tasksv1.Task{Title: id}})); err != nil {
				done <- err
				return
			}
			made++
		}
	}()
	for _, version := range []string{"v2", "v1", "v2"} {
		s.Switch(version)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	list, err := v1.ListTasks(t.Context(), connect.NewRequest(&tasksv1.ListTasksRequest{Parent: "projects/home", PageSize: 1000}))
	if err != nil || len(list.Msg.Tasks) != min(made, 1000) {
		t.Errorf("%d of %d tasks are there, %v", len(list.Msg.GetTasks()), made, err)
	}
}

// TestGroupsByContent: services whose groups go by content, as bbs has them, can be switched too.
func TestGroupsByContent(t *testing.T) {
	t.Parallel()
	s := dbcontrollertest.Start(t, samples.Service())
	s.Switch("v2")
	s.Switch("v1")
}
