package task

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

func init() { raced.DrawFewer() }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait for a condition.
const patience = time.Minute

// world is a stack of tasks over one version's data.
type world struct {
	t     testing.TB
	store *sampletest.Store
	v1    bbsv1connect.TaskServiceClient
	v2    bbsv2connect.TaskServiceClient // nil over v1 data
	cells *fakeCells
	make  func(vrunner.Store, Cells, Config) vrunner.Controller
}

// fakeCells are the cells that a test knows.
type fakeCells struct {
	mu   sync.Mutex
	lost map[string]bool
	reps map[string]string
}

func (c *fakeCells) Lost(context.Context) (map[string]bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost, nil
}

func (c *fakeCells) RepURL(_ context.Context, cell string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reps[cell], nil
}

// overV1 and overV2 serve v1's API over v1's and over v2's data.
func overV1(t testing.TB) *world {
	s := sampletest.New(t, Kind)
	mux := http.NewServeMux()
	mux.Handle(NativeV1(s))
	return &world{t: t, store: s, v1: bbsv1connect.NewTaskServiceClient(inprocess.Client(mux), "http://bbs"), cells: &fakeCells{}, make: ControllerV1}
}

func overV2(t testing.TB) *world {
	s := sampletest.New(t, Kind)
	mux := http.NewServeMux()
	mux.Handle(NativeV1(OverV2(s)))
	mux.Handle(NativeV2(s))
	c := inprocess.Client(mux)
	return &world{t: t, store: s, v1: bbsv1connect.NewTaskServiceClient(c, "http://bbs"), v2: bbsv2connect.NewTaskServiceClient(c, "http://bbs"), cells: &fakeCells{}, make: ControllerV2}
}

// both runs a test over either version's data.
func both(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	for name, over := range map[string]func(testing.TB) *world{"v1 data": overV1, "v2 data": overV2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, over(t))
		})
	}
}

// run starts a controller, and returns what ends it and waits for its end.
func (w *world) run(cfg Config) (stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			// As the Runner does after an error.
			if err := w.make(w.store, w.cells, cfg).Run(ctx); ctx.Err() == nil && !errors.Is(err, record.ErrUnavailable) {
				w.t.Errorf("the controller has ended: %v", err)
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(vrunner.ErrEnded); <-ended })
	w.t.Cleanup(stop)
	return stop
}

// quick are times for tests: fast, and generous where something must not happen.
var quick = Config{Every: 50 * time.Millisecond, FirstPause: 5 * time.Millisecond, CallbackTimeout: 30 * time.Second, ExpireCompleted: time.Hour}

func ask[Q, A any](w *world, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), req *Q) *A {
	w.t.Helper()
	res, err := call(context.Background(), connect.NewRequest(req))
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Msg
}

// desire creates a task.
func (w *world) desire(guid, callback string) {
	w.t.Helper()
	ask(w, w.v1.DesireTask, &bbsv1.DesireTaskRequest{TaskGuid: guid, Domain: "cf", Definition: &bbsv1.TaskDefinition{CompletionCallbackUrl: callback, Annotation: "note"}})
}

// completed creates a task that has run on cell c.
func (w *world) completed(guid, callback string) {
	w.t.Helper()
	w.desire(guid, callback)
	if !ask(w, w.v1.StartTask, &bbsv1.StartTaskRequest{TaskGuid: guid, CellId: "c"}).GetShouldStart() {
		w.t.Error("it runs already")
	}
	ask(w, w.v1.CompleteTask, &bbsv1.CompleteTaskRequest{TaskGuid: guid, CellId: "c", Result: "42"})
}

// get returns a task, or nil if there is none.
func (w *world) get(guid string) *bbsv1.Task {
	w.t.Helper()
	res, err := w.v1.GetTask(context.Background(), connect.NewRequest(&bbsv1.GetTaskRequest{TaskGuid: guid}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Msg.GetTask()
}

// await waits until a task is as ok says. A nil task is deleted.
func (w *world) await(what, guid string, ok func(*bbsv1.Task) bool) {
	w.t.Helper()
	var last *bbsv1.Task
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if last = w.get(guid); ok(last) {
			return
		}
	}
	w.t.Fatalf("%s: it is %v", what, last)
}

func gone(t *bbsv1.Task) bool { return t == nil }

// receiver is a callback. It answers each post by the next of its answers, and by the last one from
// then on.
type receiver struct {
	url string

	mu      sync.Mutex
	answers []http.HandlerFunc
	bodies  []string
}

func receive(t testing.TB, answers ...http.HandlerFunc) *receiver {
	r := &receiver{answers: answers}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		answer := r.answers[min(len(r.bodies), len(r.answers)-1)]
		r.bodies = append(r.bodies, req.Method+" "+req.Header.Get("Content-Type")+" "+string(body))
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

func (r *receiver) posts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

func answering(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}
