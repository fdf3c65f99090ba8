package dbcontrollertest_test

import (
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/dbcontrollertest"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v1/tasksv1connect"
	"dbcontroller.dev/examples/starter/service/tasks"
)

// A client of v1 notices nothing of the upgrade to v2 and of the rollback. The service is the one that
// 'dbcontroller init service tasks' generates.
func ExampleServer_Switch() {
	var t *testing.T // of the test

	server := dbcontrollertest.Start(t, tasks.Service())
	client := tasksv1connect.NewTaskServiceClient(server.Client(), server.URL)
	create := func(id string) {
		_, err := client.CreateTask(t.Context(), connect.NewRequest(&tasksv1.CreateTaskRequest{
			Parent: "projects/home", TaskId: id, Task: &tasksv1.Task{Title: "paint"},
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	create("before")
	server.Switch("v2")
	create("after")
	server.Switch("v1") // the rollback
	list, err := client.ListTasks(t.Context(), connect.NewRequest(&tasksv1.ListTasksRequest{Parent: "projects/home"}))
	if err != nil || len(list.Msg.Tasks) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}
