package task

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/bbs/outbound"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
)

// TestRefused: what no task may be.
func TestRefused(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for _, tc := range []struct {
			guid, domain string
			definition   *bbsv1.TaskDefinition
			text         string
		}{
			{"", "cf", &bbsv1.TaskDefinition{}, "task_guid: "}, {"a/b", "cf", &bbsv1.TaskDefinition{}, "task_guid: "}, {strings.Repeat("g", 257), "cf", &bbsv1.TaskDefinition{}, "task_guid: "},
			{"g", "", &bbsv1.TaskDefinition{}, "domain: is missing"}, {"g", "cf", nil, "definition: is missing"},
			{"g", "cf", &bbsv1.TaskDefinition{Rootfs: strings.Repeat("r", 128<<10)}, "definition: has "},
			{"g", "cf", &bbsv1.TaskDefinition{CompletionCallbackUrl: "file:///etc/passwd"}, "definition.completion_callback_url: must begin with http:// or https://"},
			{"g", "cf", &bbsv1.TaskDefinition{CompletionCallbackUrl: "http:///x"}, "definition.completion_callback_url: has no host"},
			{"g", "cf", &bbsv1.TaskDefinition{CompletionCallbackUrl: "http://u:secret@h:x/"}, "definition.completion_callback_url: is no URL"},
			{"g", "cf", &bbsv1.TaskDefinition{CompletionCallbackUrl: "http://" + strings.Repeat("h", 2048)}, "definition.completion_callback_url: has 2055 bytes"},
		} {
			_, err := w.v1.DesireTask(t.Context(), connect.NewRequest(&bbsv1.DesireTaskRequest{TaskGuid: tc.guid, Domain: tc.domain, Definition: tc.definition}))
			sampletest.WantError(t, err, connect.CodeInvalidArgument, tc.text)
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a password: %v", err)
			}
		}
		w.desire("g", "")
		_, err := w.v1.DesireTask(t.Context(), connect.NewRequest(&bbsv1.DesireTaskRequest{TaskGuid: "g", Domain: "cf", Definition: &bbsv1.TaskDefinition{}}))
		sampletest.WantCode(t, err, connect.CodeAlreadyExists)
		_, err = w.v1.StartTask(t.Context(), connect.NewRequest(&bbsv1.StartTaskRequest{TaskGuid: "g"}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "cell_id: is missing")
		_, err = w.v1.CompleteTask(t.Context(), connect.NewRequest(&bbsv1.CompleteTaskRequest{TaskGuid: "g", CellId: "c", Result: strings.Repeat("x", maxResult+1)}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "result: has ")
		if n := len(w.store.All(t, Kind)); n != 1 {
			t.Errorf("there are %d tasks", n)
		}
	})
}

// sameCalls are calls of v1's API.
var sameCalls = map[string]func(ctx context.Context, w *world, guid, cell string) (proto.Message, error){
	"desire": func(ctx context.Context, w *world, guid, _ string) (proto.Message, error) {
		return answer(w.v1.DesireTask(ctx, connect.NewRequest(&bbsv1.DesireTaskRequest{TaskGuid: guid, Domain: "cf", Definition: &bbsv1.TaskDefinition{Env: []*bbsv1.EnvVar{{Name: "A", Value: "b"}}}})))
	},
	"start": func(ctx context.Context, w *world, guid, cell string) (proto.Message, error) {
		return answer(w.v1.StartTask(ctx, connect.NewRequest(&bbsv1.StartTaskRequest{TaskGuid: guid, CellId: cell})))
	},
	"complete": func(ctx context.Context, w *world, guid, cell string) (proto.Message, error) {
		return answer(w.v1.CompleteTask(ctx, connect.NewRequest(&bbsv1.CompleteTaskRequest{TaskGuid: guid, CellId: cell, Result: "42"})))
	},
	"break": func(ctx context.Context, w *world, guid, cell string) (proto.Message, error) {
		return answer(w.v1.CompleteTask(ctx, connect.NewRequest(&bbsv1.CompleteTaskRequest{TaskGuid: guid, CellId: cell, Failed: true, FailureReason: strings.Repeat("é", 600), Result: "ignored"})))
	},
	"fail": func(ctx context.Context, w *world, guid, _ string) (proto.Message, error) {
		return answer(w.v1.FailTask(ctx, connect.NewRequest(&bbsv1.FailTaskRequest{TaskGuid: guid, FailureReason: "why"})))
	},
	"cancel": func(ctx context.Context, w *world, guid, _ string) (proto.Message, error) {
		return answer(w.v1.CancelTask(ctx, connect.NewRequest(&bbsv1.CancelTaskRequest{TaskGuid: guid})))
	},
	"resolving": func(ctx context.Context, w *world, guid, _ string) (proto.Message, error) {
		return answer(w.v1.ResolvingTask(ctx, connect.NewRequest(&bbsv1.ResolvingTaskRequest{TaskGuid: guid})))
	},
	"delete": func(ctx context.Context, w *world, guid, _ string) (proto.Message, error) {
		return answer(w.v1.DeleteTask(ctx, connect.NewRequest(&bbsv1.DeleteTaskRequest{TaskGuid: guid})))
	},
	"get": func(ctx context.Context, w *world, guid, _ string) (proto.Message, error) {
		return answer(w.v1.GetTask(ctx, connect.NewRequest(&bbsv1.GetTaskRequest{TaskGuid: guid})))
	},
	"list": func(ctx context.Context, w *world, _, cell string) (proto.Message, error) {
		return answer(w.v1.ListTasks(ctx, connect.NewRequest(&bbsv1.ListTasksRequest{CellId: cell, Domain: "cf", Filter: `created_ms > 0 && (completed_ms == 0 || failed || state != "PENDING")`, OrderBy: "task_guid desc"})))
	},
}

func answer[M any, P interface {
	*M
	proto.Message
}](res *connect.Response[M], err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return P(res.Msg), nil
}

// outcome is what a client is told, without times and revisions.
func outcome(m proto.Message, err error) string {
	if coded := new(connect.Error); errors.As(err, &coded) {
		return fmt.Sprintf("%s: %s", coded.Code(), coded.Message())
	}
	plain := func(t *bbsv1.Task) {
		if t != nil {
			t.Revision, t.CreatedMs, t.UpdatedMs, t.CompletedMs = 0, min(t.CreatedMs, 1), min(t.UpdatedMs, 1), min(t.CompletedMs, 1)
		}
	}
	switch m := m.(type) {
	case interface{ GetTask() *bbsv1.Task }:
		plain(m.GetTask())
	case *bbsv1.ListTasksResponse:
		for _, t := range m.Tasks {
			plain(t)
		}
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return fmt.Sprintf("%q %v", raw, err)
}

// TestSameTasks: whatever clients of v1 do, they are told the same over either version's data.
func TestSameTasks(t *testing.T) {
	t.Parallel()
	names := make([]string, 0, len(sameCalls))
	for name := range sameCalls {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(rt *rapid.T) {
		a, b := overV1(t), overV2(t)
		for range rapid.IntRange(1, 20).Draw(rt, "calls") {
			name, guid, cell := rapid.SampledFrom(names).Draw(rt, "call"), rapid.SampledFrom([]string{"g", "g", "h"}).Draw(rt, "guid"), rapid.SampledFrom([]string{"c", "c", "d"}).Draw(rt, "cell")
			x, y := outcome(sameCalls[name](t.Context(), a, guid, cell)), outcome(sameCalls[name](t.Context(), b, guid, cell))
			if x != y {
				rt.Fatalf("%s of %s by %s: over v1 data %s\nover v2 data %s", name, guid, cell, x, y)
			}
		}
	})
}

// TestRejections: v2 counts them, v1 does not know them, and they survive what v1 changes.
func TestRejections(t *testing.T) {
	t.Parallel()
	w := overV2(t)
	w.desire("g", "")
	ask(w, w.v2.RejectTask, &bbsv2.RejectTaskRequest{TaskGuid: "g", RejectionReason: "no room"})
	ask(w, w.v1.StartTask, &bbsv1.StartTaskRequest{TaskGuid: "g", CellId: "c"})
	got := ask(w, w.v2.GetTask, &bbsv2.GetTaskRequest{TaskGuid: "g"}).GetTask()
	if got.GetRejectionCount() != 1 || got.GetRejectionReason() != "no room" || got.GetState() != string(Running) {
		t.Errorf("it is %v", got)
	}
	_, err := w.v2.RejectTask(t.Context(), connect.NewRequest(&bbsv2.RejectTaskRequest{TaskGuid: "g"}))
	sampletest.WantCode(t, err, connect.CodeFailedPrecondition)
}

// TestCells: a task of a lost cell fails, and the cell of a cancelled one is asked to stop it.
func TestCells(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		called := make(chan string, 10)
		mux := http.NewServeMux()
		mux.HandleFunc(outbound.CancelPattern, func(rw http.ResponseWriter, r *http.Request) {
			called <- r.PathValue("task_guid")
			rw.WriteHeader(http.StatusAccepted)
		})
		rep := httptest.NewServer(mux)
		t.Cleanup(rep.Close)
		w.cells.lost, w.cells.reps = map[string]bool{"lost": true}, map[string]string{"c": rep.URL + "/"}
		for guid, cell := range map[string]string{"a b?": "c", "on no cell": "", "unreachable": "x", "g": "lost"} {
			w.desire(guid, "")
			if cell != "" {
				ask(w, w.v1.StartTask, &bbsv1.StartTaskRequest{TaskGuid: guid, CellId: cell})
			}
		}
		w.run(quick)
		w.await("failed with its cell", "g", func(t *bbsv1.Task) bool { return t.GetFailed() && t.GetFailureReason() == cellLost })
		for _, guid := range []string{"on no cell", "unreachable", "a b?"} {
			ask(w, w.v1.CancelTask, &bbsv1.CancelTaskRequest{TaskGuid: guid})
		}
		if guid := <-called; guid != "a b?" {
			t.Errorf("the cell was asked to stop %q", guid)
		}
	})
}

// TestUnreadableTask: it stops no other task.
func TestUnreadableTask(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		r := receive(t, answering(200))
		w.completed("g", r.url)
		w.store.Put(t, Kind, bson.D{{Key: "_id", Value: "a"}, {Key: "task_guid", Value: "a"}, {Key: "state", Value: 7}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.make(w.store, w.cells, quick).Run(ctx) }()
		w.await("posted", "g", gone)
		if err := <-ended; err == nil {
			t.Error("nobody is told of the unreadable one")
		}
		cancel()
	})
}
