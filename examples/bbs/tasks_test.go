package bbs

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/bbs/cell"
	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/vrunner"
)

// TestTasksOnCells: cells run tasks once each. A task ends with its cell, whether that is back soon
// or counts as lost.
func TestTasksOnCells(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]struct {
		kinds      []string
		stack      func(vrunner.Store) http.Handler
		controller func(vrunner.Store, task.Config) vrunner.Controller
	}{
		"v1 data": {kindsV1, func(s vrunner.Store) http.Handler { return StackV1(s, nil) }, TasksV1},
		"v2 data": {kindsV2, func(s vrunner.Store) http.Handler { return StackV2(s) }, TasksV2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := sampletest.New(t, over.kinds...)
				client := inprocess.Client(over.stack(store))
				a, tasks := apiOf(client, "http://bbs"), bbsv1connect.NewTaskServiceClient(client, "http://bbs")
				background(t, func(ctx context.Context) {
					_ = over.controller(store, task.Config{Every: time.Second, ExpireCompleted: time.Minute}).Run(ctx) // ends with its context
				})
				stops := map[string]func(){}
				cells := map[string]*cell.Cell{}
				start := func(id string) {
					if cells[id] == nil {
						cells[id] = cell.New(cell.Config{ID: id, Instances: a.actualV1, Processes: a.v1, Tasks: tasks, Every: time.Second, Room: 2})
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan struct{})
					go func() { defer close(ended); cells[id].Run(ctx) }()
					stops[id] = func() { cancel(); <-ended }
				}
				start("c1")
				desire := func(guid, path string) {
					t.Helper()
					if _, err := tasks.DesireTask(t.Context(), connect.NewRequest(&bbsv1.DesireTaskRequest{TaskGuid: guid, Domain: "cf", Definition: &bbsv1.TaskDefinition{Action: &bbsv1.Action{Path: path, Args: []string{"result", "of", guid}}}})); err != nil {
						t.Fatal(err)
					}
				}
				want := func(what string, lines ...string) {
					t.Helper()
					res, err := tasks.ListTasks(t.Context(), connect.NewRequest(&bbsv1.ListTasksRequest{}))
					if err != nil {
						t.Fatal(err)
					}
					var got []string
					for _, x := range res.Msg.GetTasks() {
						got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s%s", x.TaskGuid, x.State, x.CellId, x.Result, x.FailureReason)))
					}
					if !slices.Equal(got, lines) {
						t.Errorf("%s: %q, want %q", what, got, lines)
					}
				}
				after := func(d time.Duration) { <-time.After(d); synctest.Wait() }

				for _, guid := range []string{"a", "b", "c"} {
					desire(guid, cell.SleepingPath)
				}
				desire("done", "/bin/echo")
				after(3 * time.Second)
				want("the cell has room for two", "a RUNNING c1", "b RUNNING c1", "c PENDING", "done PENDING")
				start("c2")
				after(3 * time.Second)
				want("another cell takes the others", "a RUNNING c1", "b RUNNING c1", "c RUNNING c2", "done COMPLETED c2 result of done")
				stops["c1"]()
				start("c1")
				after(3 * time.Second)
				want("a cell has crashed", "a COMPLETED c1 the cell does not run it", "b COMPLETED c1 the cell does not run it", "c RUNNING c2", "done COMPLETED c2 result of done")
				stops["c2"]()
				desire("fails", cell.FailingPath)
				after(cellTimeout + 5*time.Second)
				want("a cell is lost", "a COMPLETED c1 the cell does not run it", "b COMPLETED c1 the cell does not run it", "c COMPLETED c2 the cell disappeared before completion", "done COMPLETED c2 result of done", "fails COMPLETED c1 exit status 1")
				after(2 * time.Minute)
				want("all have expired")
				stops["c1"]()
			})
		})
	}
}
