package dbcontroller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev"
	"dbcontroller.dev/examples/sampletest"
	tasksv1 "dbcontroller.dev/examples/starter/service/gen/tasks/v1"
	tasksv2 "dbcontroller.dev/examples/starter/service/gen/tasks/v2"
	"dbcontroller.dev/examples/starter/service/tasks"
	"dbcontroller.dev/transform/lens"
)

// A service declares its versions, and what differs between their records. Each of the two calls is the
// main function of a program of its own.
func Example() {
	differences, err := lens.Parse("tasks/lens.yaml", []byte("operations:\n  - rename: {from: title, to: summary}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	// Each version mounts its handlers over data of its own form.
	mountV1 := func(*http.ServeMux, dbcontroller.Store, ...connect.HandlerOption) {}
	mountV2 := func(*http.ServeMux, dbcontroller.Store, ...connect.HandlerOption) {}
	service := dbcontroller.Service{
		Name: "tasks",
		Versions: []dbcontroller.Version{
			{Name: "v1", APIs: []protoreflect.ServiceDescriptor{tasksv1.File_tasks_v1_tasks_proto.Services().Get(0)}, Mount: mountV1},
			{Name: "v2", APIs: []protoreflect.ServiceDescriptor{tasksv2.File_tasks_v2_tasks_proto.Services().Get(0)}, Mount: mountV2,
				Transformers: dbcontroller.Transformers{differences.Spec("tasks", "tasks", lens.Managed())}},
		},
	}
	dbcontroller.Serve(service)      // a server: as many as you like
	dbcontroller.Controller(service) // a controller, with all commands of an operator
}

// A program with a main function, an http.Server and a logger of its own.
func ExampleNew() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := dbcontroller.New(tasks.Service(), dbcontroller.Options{ConfigFile: "config.yaml", Logger: slog.Default()})
	if err != nil {
		log.Fatal(err) // the error names the setting to correct
	}
	api := &http.Server{
		Addr: ":8443", Handler: server.Handler(), TLSConfig: server.TLSConfig(),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
	}
	ran := make(chan error, 1)
	go func() {
		defer stop() // also if the server cannot start or go on
		ran <- server.Run(context.Background())
	}()
	listened := make(chan error, 1)
	go func() {
		defer stop()
		listened <- api.ListenAndServeTLS("", "")
	}()
	<-ctx.Done()
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(server.Close(limit), api.Shutdown(limit), <-ran)
	if ended := <-listened; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// While v2 is active, clients of v1 and of v2 work on the same records.
func ExampleService_Handler() {
	data, err := sampletest.Open("tasks") // in memory; a test calls dbcontrollertest.NewStore
	if err != nil {
		fmt.Println(err)
		return
	}
	h := tasks.Service().Handler("v2", map[string]dbcontroller.Store{"v2": data})
	call := func(method, body string) map[string]any {
		r := httptest.NewRequest(http.MethodPost, "/"+method, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var out map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			fmt.Println(err)
		}
		return out
	}
	call("tasks.v1.TaskService/CreateTask", `{"parent": "projects/home", "taskId": "paint", "task": {"title": "paint the door"}}`)
	fmt.Println(call("tasks.v2.TaskService/GetTask", `{"name": "projects/home/tasks/paint"}`)["summary"])
	// Output: paint the door
}
