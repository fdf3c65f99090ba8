package resource_test

import (
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	tasksv3 "dbcontroller.dev/gen/tasks/v3"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
)

// TestRenamedFields: a record that was written under former names, its revision among them, is
// read as it was, is changed on top of what others change, and has the present names of what
// was changed.
func TestRenamedFields(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), sampletest.New(t, "tasks")
	const name = "projects/p/lists/l/tasks/t"
	doc, err := bson.Marshal(bson.D{
		{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "label", Value: "paint"}, {Key: "priority", Value: int32(1)},
		{Key: "version", Value: int64(7)}, {Key: "urgency", Value: "URGENCY_HOT"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(ctx, []record.Mutation{{Kind: "tasks", Key: record.StringKey(name), Doc: doc}}); err != nil {
		t.Fatal(err)
	}
	table := resource.New(s, resource.Config[*tasksv3.Task]{Kind: "tasks", Pattern: "projects/{project}/lists/{list}/tasks/{task}"})
	got, err := table.Get(ctx, &tasksv3.GetTaskRequest{Name: name})
	if want := (&tasksv3.Task{Name: name, DisplayName: "paint", Priority: 1, Revision: 7, Urgency: tasksv3.Urgency_URGENCY_NOW}); err != nil || !proto.Equal(got, want) {
		t.Errorf("read as %v, %v, want %v", got, err, want)
	}
	update := &tasksv3.UpdateTaskRequest{Task: &tasksv3.Task{Name: name, Priority: 2}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"priority"}}, ExpectedRevision: proto.Int64(6)}
	_, err = table.Update(ctx, update)
	sampletest.WantError(t, apiversion.CodeError(err), connect.CodeAborted, "revision is 7")
	// Another program changes the record under its former names, between the read and the write.
	s.BeforeWrite(func([]record.Mutation) error {
		s.BeforeWrite(nil)
		other, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "label", Value: "paint it black"}, {Key: "version", Value: int64(8)}})
		if err != nil {
			return err
		}
		return s.Write(ctx, []record.Mutation{{Kind: "tasks", Key: record.StringKey(name), Doc: other}})
	})
	update.ExpectedRevision = nil
	if got, err = table.Update(ctx, update); err != nil || got.DisplayName != "paint it black" || got.Revision != 9 {
		t.Errorf("updated to %v, %v", got, err)
	}
	rec, err := s.Get(ctx, "tasks", name)
	want := `{"_id": "` + name + `","label": "paint it black","revision": {"$numberLong":"9"},"name": "` + name + `","priority": {"$numberInt":"2"}}`
	if err != nil || rec.Doc.String() != want {
		t.Errorf("stored %s, %v, want %s", rec.Doc, err, want)
	}
}
