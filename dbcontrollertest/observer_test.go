package dbcontrollertest_test

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev"
	"dbcontroller.dev/dbcontrollertest"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v1/tasksv1connect"
	tasksv2 "dbcontroller.dev/examples/starter/service/gen/tasks/v2"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v2/tasksv2connect"
	"dbcontroller.dev/examples/starter/service/tasks"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// observed is the service of tasks with an observer of v1.
func observed(changed func(name, before, after string)) dbcontroller.Service {
	observer := resource.NewObserver(func(_ context.Context, c resource.Change[*tasksv1.Task]) error {
		changed(c.Name, c.Before.GetTitle(), c.After.GetTitle())
		return nil
	})
	service := tasks.Service()
	service.Versions[0].Observers = []vrunner.Observer{{Name: "titles", Run: func(ctx context.Context, data dbcontroller.Store) error {
		return observer.Run(ctx, resource.New(data, resource.Config[*tasksv1.Task]{Kind: "tasks", Pattern: "projects/{project}/tasks/{task}"}))
	}}}
	return service
}

// TestObserver: an observer of v1 sees the changes of clients of both versions in v1's form, before a
// switch, after it and after the rollback, and each once.
func TestObserver(t *testing.T) {
	t.Parallel()
	changes := make(chan string, 100)
	server := dbcontrollertest.Start(t, observed(func(name, before, after string) { changes <- fmt.Sprintf("%s: %q to %q", name, before, after) }))
	old, now := tasksv1connect.NewTaskServiceClient(server.Client(), server.URL), tasksv2connect.NewTaskServiceClient(server.Client(), server.URL)
	expect := func(want string) {
		t.Helper()
		if got := <-changes; got != want {
			t.Errorf("saw %s, want %s", got, want)
		}
	}
	create := func(id string) {
		t.Helper()
		_, err := old.CreateTask(t.Context(), connect.NewRequest(&tasksv1.CreateTaskRequest{Parent: "projects/home", TaskId: id, Task: &tasksv1.Task{Title: "to " + id}}))
		if err != nil {
			t.Fatal(err)
		}
		expect(fmt.Sprintf(`projects/home/tasks/%s: "" to "to %s"`, id, id))
	}
	create("paint")
	create("sleep")
	server.Switch("v2")
	create("eat")
	_, err := now.UpdateTask(t.Context(), connect.NewRequest(&tasksv2.UpdateTaskRequest{Task: &tasksv2.Task{Name: "projects/home/tasks/paint", Summary: "painted"}}))
	if err != nil {
		t.Fatal(err)
	}
	expect(`projects/home/tasks/paint: "to paint" to "painted"`)
	server.Switch("v1")
	create("drink")
	if _, err := old.DeleteTask(t.Context(), connect.NewRequest(&tasksv1.DeleteTaskRequest{Name: "projects/home/tasks/paint"})); err != nil {
		t.Fatal(err)
	}
	expect(`projects/home/tasks/paint: "painted" to ""`)
	if len(changes) > 0 {
		t.Errorf("saw also %s", <-changes)
	}
}

// TestObserverOfADiscontinuedVersion: an observer rests while its version is not served, and then sees
// what differs.
func TestObserverOfADiscontinuedVersion(t *testing.T) {
	t.Parallel()
	changes := make(chan string, 100)
	service := observed(func(name, before, after string) { changes <- fmt.Sprintf("%s: %q to %q", name, before, after) })
	service.Versions[1].Discontinued = true
	server := dbcontrollertest.Start(t, service)
	now := tasksv2connect.NewTaskServiceClient(server.Client(), server.URL)
	server.Switch("v2")
	for _, id := range []string{"a", "b"} {
		if _, err := now.CreateTask(t.Context(), connect.NewRequest(&tasksv2.CreateTaskRequest{Parent: "projects/p", TaskId: id, Task: &tasksv2.Task{Summary: id}})); err != nil {
			t.Fatal(err)
		}
	}
	if len(changes) > 0 {
		t.Errorf("saw %s", <-changes)
	}
	server.Switch("v1")
	for _, id := range []string{"a", "b"} {
		if got, want := <-changes, fmt.Sprintf(`projects/p/tasks/%s: "" to "%s"`, id, id); got != want {
			t.Errorf("saw %s, want %s", got, want)
		}
	}
}
