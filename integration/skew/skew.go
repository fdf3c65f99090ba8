// Package skew is the service that 'dbcontroller init service' generates, with a third version
// added. Tests use it for clients that are two versions behind.
//
// It is not for users and may change with any version.
package skew

import (
	_ "embed"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev"
	"dbcontroller.dev/examples/starter/service/tasks"
	tasksv3 "dbcontroller.dev/gen/tasks/v3"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/transform/lens"
)

const kind = "tasks" // of the records, in all versions

var serviceV3 = tasksv3.File_tasks_v3_tasks_proto.Services().ByName("TaskService")

// Service returns the service with its first versions only. A server with two is an older build.
func Service(versions int) dbcontroller.Service {
	s := tasks.Service()
	s.Versions = append(s.Versions, dbcontroller.Version{
		Name: "v3", APIs: []protoreflect.ServiceDescriptor{serviceV3}, Mount: mountV3, Transformers: fromV2(),
	})[:versions]
	return s
}

//go:embed lens.yaml
var lensText []byte

func fromV2() dbcontroller.Transformers {
	l, err := lens.Parse("lens.yaml", lensText)
	if err != nil {
		panic(err) // each test would fail here
	}
	set := lens.NewSet()
	set.Add(kind, kind, l)
	if err := set.Link(); err != nil {
		panic(err)
	}
	return dbcontroller.Transformers{l.Spec(kind, kind, lens.Managed())}
}

func mountV3(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
	table := resource.New(data, resource.Config[*tasksv3.Task]{Kind: kind, Pattern: "projects/{project}/lists/{list}/tasks/{task}"})
	mux.Handle(resource.NewHandler(resource.Service{Descriptor: serviceV3, Tables: []resource.Standard{table}, Options: opts}))
}
