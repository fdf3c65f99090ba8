package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v1/tasksv1connect"
	tasksv2 "dbcontroller.dev/examples/starter/service/gen/tasks/v2"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v2/tasksv2connect"
	tasksv3 "dbcontroller.dev/gen/tasks/v3"
	"dbcontroller.dev/gen/tasks/v3/tasksv3connect"
	"dbcontroller.dev/refusal"
)

// skewed is clients of all versions of a service, at one server.
type skewed struct {
	v1 tasksv1connect.TaskServiceClient
	v2 tasksv2connect.TaskServiceClient
	v3 tasksv3connect.TaskServiceClient
}

func (s *system) skewed(server *child, opts ...connect.ClientOption) skewed {
	api, _ := server.addresses()
	url := "http://" + api
	return skewed{tasksv1connect.NewTaskServiceClient(s.http, url, opts...), tasksv2connect.NewTaskServiceClient(s.http, url, opts...),
		tasksv3connect.NewTaskServiceClient(s.http, url, opts...)}
}

// TestSkew takes a service of three versions from the first to the last, by processes of two
// builds. A client of v1 writes all the time, one and then two versions behind, and all it was
// told is seen by the clients of every version. Who asks for what is out of the range is told
// the range.
func TestSkew(t *testing.T) {
	t.Parallel()
	raceProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{service: "tasks.example.com", dbs: []string{"v1", "v2", "v3"}, kinds: "[]"})
	// v3 starts with a task of its own, once it is active.
	s.write("v3.jsonl", `{"_id": "projects/start/lists/inbox/tasks/first", "name": "projects/start/lists/inbox/tasks/first", "display_name": "begin", "revision": {"$numberLong": "1"}}`)
	s.edit(replace("apiVersion: v3", "apiVersion: v3\n  fixtures: [{kind: tasks, file: v3.jsonl}]"))
	run := func(id, role string, args ...string) *child {
		args = append(args, "--config", s.config, "--id", id, "--operator-listen", "127.0.0.1:0")
		return spawn(t, id, command(t, role, args, s.env))
	}
	s.adopt(run("controller", roleSkew, "run", "--api-listen", "127.0.0.1:0")).ready(ctx)
	server := run("server", roleSkewServer, "--listen", "127.0.0.1:0").ready(ctx)
	older := run("older", roleSkewOlder, "--listen", "127.0.0.1:0").ready(ctx)
	clients := s.skewed(server)

	outOfRange := func(at *child, err error, oldest, newest string) {
		t.Helper()
		reason, meta := refusal.Of(err)
		if reason != refusal.VersionNotServed || meta[refusal.MetaOldest] != oldest || meta[refusal.MetaNewest] != newest ||
			connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), oldest) || !strings.Contains(err.Error(), newest) {
			t.Errorf("%s: %v, reason %s %v, want the range from %s to %s", at.name, err, reason, meta, oldest, newest)
		}
	}
	ahead := func(at *child, oldest, newest string) {
		t.Helper()
		_, err := s.skewed(at).v3.GetTask(ctx, connect.NewRequest(&tasksv3.GetTaskRequest{Name: "projects/p/lists/inbox/tasks/t"}))
		outOfRange(at, err, oldest, newest)
	}
	ahead(older, "v1", "v2")
	ahead(server, "v1", "v2")

	w := &skewWriter{client: clients.v1, stop: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { w.run(ctx, t) })
	defer func() { w.end(); wg.Wait() }()
	w.await(ctx, t, 5)
	s.beginTo(ctx, "v2")
	s.await(ctx, "the flip to v2", flipped("v2"))
	w.await(ctx, t, 5)
	older.terminate(patience)
	s.beginTo(ctx, "v3")
	s.await(ctx, "the flip to v3", flipped("v3"))
	w.await(ctx, t, 5)
	w.end()
	wg.Wait()

	w.seenByAll(ctx, t, clients)
	// What v3 writes, clients that are one and two behind see, by their own names.
	if _, err := clients.v3.CreateTask(ctx, connect.NewRequest(&tasksv3.CreateTaskRequest{Parent: "projects/p/lists/inbox", TaskId: "new", Task: &tasksv3.Task{DisplayName: "made in v3"}})); err != nil {
		t.Fatal(err)
	}
	one, err := clients.v1.GetTask(ctx, connect.NewRequest(&tasksv1.GetTaskRequest{Name: "projects/p/tasks/new"}))
	if err != nil || one.Msg.Title != "made in v3" {
		t.Errorf("v1 is shown %v, %v", one, err)
	}
	two, err := clients.v2.GetTask(ctx, connect.NewRequest(&tasksv2.GetTaskRequest{Name: "projects/p/tasks/new"}))
	if err != nil || two.Msg.Summary != "made in v3" {
		t.Errorf("v2 is shown %v, %v", two, err)
	}
	first, err := clients.v1.GetTask(ctx, connect.NewRequest(&tasksv1.GetTaskRequest{Name: "projects/start/tasks/first"}))
	if err != nil || first.Msg.Title != "begin" {
		t.Errorf("of what v3 starts with v1 is shown %v, %v", first, err)
	}
	s.beyond(ctx, server)
}

// beyond asks for versions that no build has, over plain HTTP.
func (s *system) beyond(ctx context.Context, server *child) {
	s.t.Helper()
	api, _ := server.addresses()
	for _, version := range []string{"v0", "v4"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api+"/tasks."+version+".TaskService/GetTask", strings.NewReader("{}"))
		if err != nil {
			s.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := s.http.Do(req)
		if err != nil {
			s.t.Fatal(err)
		}
		var said struct {
			Message string
			Details []struct{ Debug struct{ Reason string } }
		}
		err = json.NewDecoder(res.Body).Decode(&said)
		_ = res.Body.Close()
		want := "tasks is not served in version " + version + ": use one from v1 to v3"
		if err != nil || res.StatusCode != http.StatusNotImplemented || said.Message != want || len(said.Details) != 1 || said.Details[0].Debug.Reason != "VERSION_NOT_SERVED" {
			s.t.Errorf("%s: %d %+v, %v", version, res.StatusCode, said, err)
		}
	}
}

// skewWriter is a client of v1 that creates tasks, changes each, and deletes each third.
type skewWriter struct {
	client tasksv1connect.TaskServiceClient
	made   atomic.Int64
	once   sync.Once
	stop   chan struct{}
}

func (w *skewWriter) end() { w.once.Do(func() { close(w.stop) }) }

func (w *skewWriter) run(ctx context.Context, t *testing.T) {
	for n := int64(0); ; n++ {
		select {
		case <-w.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		name := fmt.Sprintf("projects/p/tasks/t%d", n)
		_, _, err := call(ctx, func(ctx context.Context) (*connect.Response[tasksv1.Task], error) {
			return w.client.CreateTask(ctx, connect.NewRequest(&tasksv1.CreateTaskRequest{Parent: "projects/p", TaskId: fmt.Sprintf("t%d", n), Task: &tasksv1.Task{Title: "made", DueAt: n + 1}}))
		})
		if err == nil {
			_, _, err = call(ctx, func(ctx context.Context) (*connect.Response[tasksv1.Task], error) {
				return w.client.UpdateTask(ctx, connect.NewRequest(&tasksv1.UpdateTaskRequest{Task: &tasksv1.Task{Name: name, Title: fmt.Sprintf("changed %d", n)}}))
			})
		}
		if err == nil && n%3 == 0 {
			_, _, err = call(ctx, func(ctx context.Context) (*connect.Response[tasksv1.DeleteTaskResponse], error) {
				return w.client.DeleteTask(ctx, connect.NewRequest(&tasksv1.DeleteTaskRequest{Name: name}))
			})
		}
		if err != nil {
			t.Errorf("task %d: %v", n, err)
			return
		}
		w.made.Store(n + 1)
	}
}

// await waits for more tasks.
func (w *skewWriter) await(ctx context.Context, t *testing.T, more int64) {
	t.Helper()
	from := w.made.Load()
	eventually(ctx, t, "tasks are made", func() error {
		if now := w.made.Load(); now < from+more {
			return fmt.Errorf("%d of %d", now-from, more)
		}
		return nil
	})
}

// seenByAll compares what the clients of each version list with what the writer was told.
func (w *skewWriter) seenByAll(ctx context.Context, t *testing.T, c skewed) {
	t.Helper()
	want := map[string]string{}
	for n := range w.made.Load() {
		if n%3 != 0 {
			want[fmt.Sprintf("t%d", n)] = fmt.Sprintf("changed %d due %d", n, n+1)
		}
	}
	for version, page := range map[string]func(token string) (tasks [][2]string, next string, err error){
		"v1": func(token string) (tasks [][2]string, next string, err error) {
			res, err := c.v1.ListTasks(ctx, connect.NewRequest(&tasksv1.ListTasksRequest{Parent: "projects/p", PageSize: 1000, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			for _, x := range res.Msg.Tasks {
				tasks = append(tasks, [2]string{strings.TrimPrefix(x.Name, "projects/p/tasks/"), fmt.Sprintf("%s due %d", x.Title, x.DueAt)})
			}
			return tasks, res.Msg.NextPageToken, nil
		},
		"v2": func(token string) (tasks [][2]string, next string, err error) {
			res, err := c.v2.ListTasks(ctx, connect.NewRequest(&tasksv2.ListTasksRequest{Parent: "projects/p", PageSize: 1000, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			for _, x := range res.Msg.Tasks {
				tasks = append(tasks, [2]string{strings.TrimPrefix(x.Name, "projects/p/tasks/"), fmt.Sprintf("%s due %d", x.Summary, x.DueTime.GetSeconds())})
			}
			return tasks, res.Msg.NextPageToken, nil
		},
		"v3": func(token string) (tasks [][2]string, next string, err error) {
			res, err := c.v3.ListTasks(ctx, connect.NewRequest(&tasksv3.ListTasksRequest{Parent: "projects/p/lists/inbox", PageSize: 1000, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			for _, x := range res.Msg.Tasks {
				tasks = append(tasks, [2]string{strings.TrimPrefix(x.Name, "projects/p/lists/inbox/tasks/"), fmt.Sprintf("%s due %d", x.DisplayName, x.DueTime.GetSeconds())})
			}
			return tasks, res.Msg.NextPageToken, nil
		},
	} {
		got := map[string]string{}
		for token, more := "", true; more; more = token != "" {
			tasks, next, err := page(token)
			if err != nil {
				t.Fatalf("list of %s: %v", version, err)
			}
			for _, task := range tasks {
				got[task[0]] = task[1]
			}
			token = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s shows not what its writer was told:\n%s", version, diff)
		}
	}
	t.Logf("%d tasks, %d of them live", w.made.Load(), len(want))
}
