package tasks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"dbcontroller.dev"
	"dbcontroller.dev/dbcontrollertest"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v1/tasksv1connect"
	tasksv2 "dbcontroller.dev/examples/starter/service/gen/tasks/v2"
	"dbcontroller.dev/examples/starter/service/gen/tasks/v2/tasksv2connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
)

// clients are those of a server, of both versions.
type clients struct {
	v1 tasksv1connect.TaskServiceClient
	v2 tasksv2connect.TaskServiceClient
}

// serve serves the APIs while a version is active, over data in memory.
func serve(t *testing.T, active string) clients {
	t.Helper()
	stores := map[string]dbcontroller.Store{"v1": dbcontrollertest.NewStore(t, kind), "v2": dbcontrollertest.NewStore(t, kind)}
	s := httptest.NewServer(Service().Handler(active, stores))
	t.Cleanup(s.Close)
	return clients{tasksv1connect.NewTaskServiceClient(http.DefaultClient, s.URL), tasksv2connect.NewTaskServiceClient(http.DefaultClient, s.URL)}
}

// TestV1 is what v1's clients rely on: the same over v1's data and over v2's.
func TestV1(t *testing.T) {
	t.Parallel()
	for _, active := range []string{"v1", "v2"} {
		t.Run("while "+active+" is active", func(t *testing.T) {
			t.Parallel()
			ctx, c := t.Context(), serve(t, active).v1
			for id, due := range map[string]int64{"paint": 1800000000, "sleep": 0} {
				made, err := c.CreateTask(ctx, connect.NewRequest(&tasksv1.CreateTaskRequest{
					Parent: "projects/home", TaskId: id, Task: &tasksv1.Task{Title: id + " well", DueAt: due},
				}))
				if err != nil {
					t.Fatal(err)
				}
				if got := made.Msg; got.Name != "projects/home/tasks/"+id || got.DueAt != due || got.Revision == 0 {
					t.Errorf("made %v", got)
				}
			}
			changed, err := c.UpdateTask(ctx, connect.NewRequest(&tasksv1.UpdateTaskRequest{
				Task:       &tasksv1.Task{Name: "projects/home/tasks/paint", Title: "paint the door"},
				UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}},
			}))
			if err != nil {
				t.Fatal(err)
			}
			if got := changed.Msg; got.Title != "paint the door" || got.DueAt != 1800000000 {
				t.Errorf("changed to %v", got)
			}
			list, err := c.ListTasks(ctx, connect.NewRequest(&tasksv1.ListTasksRequest{Parent: "projects/home", Filter: "due_at > 0"}))
			if err != nil {
				t.Fatal(err)
			}
			if got := list.Msg.Tasks; len(got) != 1 || got[0].Title != "paint the door" {
				t.Errorf("listed %v", got)
			}
			if _, err := c.DeleteTask(ctx, connect.NewRequest(&tasksv1.DeleteTaskRequest{Name: "projects/home/tasks/sleep"})); err != nil {
				t.Error(err)
			}
			_, err = c.GetTask(ctx, connect.NewRequest(&tasksv1.GetTaskRequest{Name: "projects/home/tasks/sleep"}))
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("what was deleted: %v", err)
			}
			_, err = c.CreateTask(ctx, connect.NewRequest(&tasksv1.CreateTaskRequest{Parent: "projects/home", TaskId: "x", Task: &tasksv1.Task{Title: "x", DueAt: -1}}))
			if connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("a task that was due before 1970: %v", err)
			}
		})
	}
}

// TestBoth: both versions see one task, and what v1 does not know survives what v1 changes.
func TestBoth(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), serve(t, "v2")
	const name = "projects/home/tasks/paint"
	_, err := c.v2.CreateTask(ctx, connect.NewRequest(&tasksv2.CreateTaskRequest{Parent: "projects/home", TaskId: "paint", Task: &tasksv2.Task{
		Summary: "paint", DueTime: timestamppb.New(timestamppb.Now().AsTime().Truncate(1e9)), Priority: 7,
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.v1.UpdateTask(ctx, connect.NewRequest(&tasksv1.UpdateTaskRequest{
		Task: &tasksv1.Task{Name: name, DueAt: 1800000000}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"due_at"}},
	})); err != nil {
		t.Fatal(err)
	}
	got, err := c.v2.GetTask(ctx, connect.NewRequest(&tasksv2.GetTaskRequest{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	if g := got.Msg; g.Priority != 7 || g.Summary != "paint" || g.DueTime.GetSeconds() != 1800000000 {
		t.Errorf("v2 has %v", g)
	}
}

// TestOverTheSwitch: v1's client goes on over the upgrade and the rollback, and loses nothing.
func TestOverTheSwitch(t *testing.T) {
	t.Parallel()
	server := dbcontrollertest.Start(t, Service())
	v1 := tasksv1connect.NewTaskServiceClient(server.Client(), server.URL)
	create := func(id string) {
		t.Helper()
		task := &tasksv1.CreateTaskRequest{Parent: "projects/home", TaskId: id, Task: &tasksv1.Task{Title: id}}
		if _, err := v1.CreateTask(t.Context(), connect.NewRequest(task)); err != nil {
			t.Fatal(err)
		}
	}
	create("before")
	server.Switch("v2")
	create("between")
	server.Switch("v1") // the rollback
	create("after")
	list, err := v1.ListTasks(t.Context(), connect.NewRequest(&tasksv1.ListTasksRequest{Parent: "projects/home"}))
	if err != nil || len(list.Msg.Tasks) != 3 {
		t.Errorf("there are %v, %v", list, err)
	}
}

// TestV2BeforeItsTime: v2 can be read while v1 is active, and not written.
func TestV2BeforeItsTime(t *testing.T) {
	t.Parallel()
	c := serve(t, "v1").v2
	if _, err := c.ListTasks(context.Background(), connect.NewRequest(&tasksv2.ListTasksRequest{})); err != nil {
		t.Error(err)
	}
	_, err := c.DeleteTask(context.Background(), connect.NewRequest(&tasksv2.DeleteTaskRequest{Name: "projects/home/tasks/paint"}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a write: %v", err)
	}
}

// TestLaws: the lens loses nothing on the way there and back, whatever the records are, but
// what it says that v1 cannot hold (LossyDown): the priority.
func TestLaws(t *testing.T) {
	t.Parallel()
	r := transform.NewRegistry("tasks")
	if err := r.Add("v1", "v2", fromV1()...); err != nil {
		t.Fatal(err)
	}
	up, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	down, err := r.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	older := draw(func(t *rapid.T) bson.D {
		return bson.D{{Key: "title", Value: rapid.String().Draw(t, "title")}, {Key: "due_at", Value: rapid.Int64Range(1, maxDue).Draw(t, "due_at")}}
	})
	newer := draw(func(t *rapid.T) bson.D {
		return bson.D{
			{Key: "summary", Value: rapid.String().Draw(t, "summary")},
			{Key: "due_time", Value: bson.DateTime(1000 * rapid.Int64Range(1, maxDue).Draw(t, "due_time"))},
			{Key: "priority", Value: int32(rapid.IntRange(0, 9).Draw(t, "priority"))},
		}
	})
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: older, New: newer, LossyDown: true})
}

// draw draws a record: one of few names, so that both versions often mean the same task, and
// some of the fields.
func draw(fields func(*rapid.T) bson.D) *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		name := "projects/p/tasks/" + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "task")
		doc := bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "revision", Value: rapid.Int64().Draw(t, "revision")}}
		for _, f := range fields(t) {
			if rapid.Bool().Draw(t, "with "+f.Key) {
				doc = append(doc, f)
			}
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return []record.Record{{Kind: kind, Key: record.StringKey(name), Doc: raw}}
	})
}
