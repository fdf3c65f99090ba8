package bbs

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/bbs/cell"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/vrunner"
)

// reach is how the service reaches a cell.
type reach struct {
	every time.Duration // between two polls of the cell
	rep   func(http.Handler) http.Handler
}

// TestStopEndpoint: a cell stops instances and tasks when it is called, long before it polls. If it
// cannot be reached, it stops them when it polls.
func TestStopEndpoint(t *testing.T) {
	t.Parallel()
	hang := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	}
	for name, how := range map[string]reach{
		"called":      {time.Hour, func(h http.Handler) http.Handler { return h }},
		"never heard": {20 * time.Millisecond, hang},
	} {
		for data, over := range map[string]struct {
			kinds       []string
			stack       func(vrunner.Store) http.Handler
			controllers []func(vrunner.Store) vrunner.Controller
		}{
			"v1 data": {kindsV1, func(s vrunner.Store) http.Handler { return StackV1(s, nil) }, []func(vrunner.Store) vrunner.Controller{
				func(s vrunner.Store) vrunner.Controller { return ControllerV1(s, 50*time.Millisecond) },
				func(s vrunner.Store) vrunner.Controller { return TasksV1(s, task.Config{Every: 50 * time.Millisecond}) },
			}},
			"v2 data": {kindsV2, func(s vrunner.Store) http.Handler { return StackV2(s) }, []func(vrunner.Store) vrunner.Controller{
				func(s vrunner.Store) vrunner.Controller { return ControllerV2(s, 50*time.Millisecond) },
				func(s vrunner.Store) vrunner.Controller { return TasksV2(s, task.Config{Every: 50 * time.Millisecond}) },
			}},
		} {
			t.Run(name+" over "+data, func(t *testing.T) {
				t.Parallel()
				store := sampletest.New(t, over.kinds...)
				for _, c := range over.controllers {
					background(t, func(ctx context.Context) {
						if err := c(store).Run(ctx); ctx.Err() == nil {
							t.Errorf("a controller has ended: %v", err)
						}
					})
				}
				stopsAtOnce(t, how, inprocess.Client(over.stack(store)))
			})
		}
	}
}

// background runs f until the test ends.
func background(t *testing.T, f func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func stopsAtOnce(t *testing.T, how reach, client *http.Client) {
	a := apiOf(client, "http://bbs")
	tasks := bbsv1connect.NewTaskServiceClient(client, "http://bbs")
	var c *cell.Cell
	rep := httptest.NewServer(how.rep(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.Handler().ServeHTTP(w, r) })))
	t.Cleanup(rep.CloseClientConnections)
	t.Cleanup(rep.Close)
	c = cell.New(cell.Config{ID: "c", Instances: a.actualV1, Processes: a.v1, Tasks: tasks, Every: how.every, Room: 4, RepURL: rep.URL})
	// look has the cell poll now, by a call that stops nothing.
	look := func() {
		r := httptest.NewRequest(http.MethodPost, "/v1/tasks/none/cancel", nil)
		c.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	state := func() string {
		res, err := a.actualV1.ListActualLRPGroups(t.Context(), connect.NewRequest(&bbsv1.ListActualLRPGroupsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, g := range res.Msg.GetActualLrpGroups() {
			out = append(out, g.GetInstance().GetState())
		}
		return fmt.Sprint(strings.Join(out, " "), len(c.Runs()))
	}
	p := lrpV1("p", "cf")
	p.Instances = 1
	createV1(t, a, p)
	until(t, "placed", func() bool { return state() == "UNCLAIMED0" })
	if _, err := tasks.DesireTask(t.Context(), connect.NewRequest(&bbsv1.DesireTaskRequest{TaskGuid: "t", Domain: "cf", Definition: &bbsv1.TaskDefinition{Action: &bbsv1.Action{Path: cell.SleepingPath}}})); err != nil {
		t.Fatal(err)
	}
	background(t, c.Run)
	until(t, "both run", func() bool { return state() == "RUNNING1" && c.Tasks() == 1 })

	if _, err := tasks.CancelTask(t.Context(), connect.NewRequest(&bbsv1.CancelTaskRequest{TaskGuid: "t"})); err != nil {
		t.Fatal(err)
	}
	until(t, "the task is stopped", func() bool { return c.Tasks() == 0 })
	res, err := tasks.GetTask(t.Context(), connect.NewRequest(&bbsv1.GetTaskRequest{TaskGuid: "t"}))
	if got := res.Msg.GetTask(); err != nil || got.GetState() != string(task.Completed) || got.GetFailureReason() != task.Cancelled {
		t.Errorf("the cancelled task is %v, %v", got, err)
	}

	before := c.Runs()[0].GUID
	if _, err := a.actualV1.RetireActualLRP(t.Context(), connect.NewRequest(&bbsv1.RetireActualLRPRequest{Name: converge.IndexName("p", 0)})); err != nil {
		t.Fatal(err)
	}
	until(t, "the retired one is stopped", func() bool {
		runs := c.Runs()
		return len(runs) == 0 || runs[0].GUID != before
	})
	until(t, "the retired one is replaced", func() bool {
		look()
		runs := c.Runs()
		return state() == "RUNNING1" && len(runs) == 1 && runs[0].GUID != before
	})
	deleteV1(t, a, "p")
	until(t, "all is stopped", func() bool { return state() == "0" })
}
