// Package tasks is a service whose API and data change from version v1 to v2 while it runs. It has
// the handlers of each version, which work on data of that version. lens.yaml describes the
// differences between the versions. The package knows nothing of databases and switches.
package tasks

import (
	"context"
	_ "embed"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev"
	"dbcontroller.dev/apiversion/listing"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	tasksv2 "dbcontroller.dev/examples/starter/service/gen/tasks/v2"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/transform/lens"
)

const (
	kind    = "tasks" // of the records, in both versions
	pattern = "projects/{project}/tasks/{task}"
)

var (
	serviceV1 = tasksv1.File_tasks_v1_tasks_proto.Services().ByName("TaskService")
	serviceV2 = tasksv2.File_tasks_v2_tasks_proto.Services().ByName("TaskService")
)

// Service is all that its server and its controller need to know of it.
func Service() dbcontroller.Service {
	return dbcontroller.Service{
		Name: "tasks",
		Versions: []dbcontroller.Version{
			{Name: "v1", APIs: []protoreflect.ServiceDescriptor{serviceV1}, Mount: mountV1},
			{Name: "v2", APIs: []protoreflect.ServiceDescriptor{serviceV2}, Mount: mountV2, Transformers: fromV1()},
		},
	}
}

//go:embed lens.yaml
var lensText []byte

// fromV1 returns the transformers between v1 and v2, in both directions.
func fromV1() dbcontroller.Transformers {
	l, err := lens.Parse("lens.yaml", lensText)
	if err != nil {
		panic(err) // each test would fail here
	}
	return dbcontroller.Transformers{l.Spec(kind, kind, lens.Managed())}
}

// mountV1 mounts v1, whose methods are all standard ones. A due_at of 0 is no time that the
// lens could convert: such a record has none.
func mountV1(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
	table := resource.New(data, resource.Config[*tasksv1.Task]{Kind: kind, Pattern: pattern, Sparse: []string{"due_at"}, Check: checkV1})
	mux.Handle(resource.NewHandler(resource.Service{Descriptor: serviceV1, Tables: []resource.Standard{table}, Options: opts}))
}

func checkV1(_ context.Context, t, _ *tasksv1.Task) error {
	if t.DueAt < 0 || t.DueAt > maxDue {
		return listing.Invalid("due_at", "is %d, must be 0 to %d", t.DueAt, maxDue)
	}
	return checkText("title", t.Title)
}

func mountV2(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
	table := resource.New(data, resource.Config[*tasksv2.Task]{Kind: kind, Pattern: pattern, Check: checkV2})
	mux.Handle(resource.NewHandler(resource.Service{Descriptor: serviceV2, Tables: []resource.Standard{table}, Options: opts}))
}

// checkV2 also refuses due times that v1 cannot show: fractions of a second, and the time that is 0
// in v1.
func checkV2(_ context.Context, t, _ *tasksv2.Task) error {
	if due := t.DueTime; due != nil && (due.Nanos != 0 || due.Seconds < 1 || due.Seconds > maxDue) {
		return listing.Invalid("due_time", "must be a whole second between 1970 and 9999")
	}
	if t.Priority < 0 || t.Priority > 9 {
		return listing.Invalid("priority", "is %d, must be 0 to 9", t.Priority)
	}
	return checkText("summary", t.Summary)
}

const (
	maxDue  = 253402300799 // Unix seconds; the end of the year 9999, as in Timestamp
	maxText = 1000
)

func checkText(field, text string) error {
	if text == "" || len(text) > maxText {
		return listing.Invalid(field, "has %d bytes, must have 1 to %d", len(text), maxText)
	}
	return nil
}
