package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// living is a server behind an http.Server of a test. Its databases cannot be reached, which these
// handlers do not notice. GET /slow waits for leave, and GET /stream for the end of the stream.
type living struct {
	*app.App
	world     deploymenttest.World
	http      *httptest.Server
	operator  *httptest.Server
	inside    chan struct{} // closed in GET /slow
	streaming chan struct{} // closed in GET /stream
	leave     chan struct{}
	ran       chan error
}

func live(t *testing.T) *living {
	t.Helper()
	l := &living{world: deploymenttest.New(t), inside: make(chan struct{}), streaming: make(chan struct{}), leave: make(chan struct{}), ran: make(chan error, 1)}
	// Managed kinds: the flip itself opens them.
	for _, version := range []string{"v1", "v2"} {
		l.world.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
			Version: version, Location: "mongo:" + version, Identity: upgradestate.Identity{Cluster: "replicaSet/c", Database: version},
			Kinds: []upgradestate.Kind{{Kind: "processes", Physical: "processes.n1", ID: version, Fence: "uuid"}},
		}})
	}
	l.world.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h1", Precopied: true}})
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "deployment: " + deploymenttest.Name + `
dbs:
- {namespace: bbs/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"}}
- {namespace: bbs/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	stack := func(version string, _ map[string]*vrunner.View, _ app.Regions, _ ...connect.HandlerOption) vrunner.Stack {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, version) })
		mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
			close(l.inside)
			<-l.leave
			fmt.Fprint(w, version)
		})
		mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, version)
			close(l.streaming)
			<-r.Context().Done()
			fmt.Fprint(w, ": ", context.Cause(r.Context()))
		})
		return vrunner.Stack{Handler: mux, Write: func(r *http.Request) bool { return r.Method == http.MethodPost },
			Stream: func(r *http.Request) bool { return r.URL.Path == "/stream" }}
	}
	l.App, err = app.New(cfg, app.Service{Name: "bbs", Versions: []string{"v1", "v2"}, Stack: stack}, app.Options{ID: "server"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	serve := func(h http.Handler, err error) *httptest.Server {
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s
	}
	l.http, l.operator = serve(l.Handler()), serve(l.Operator())
	return l
}

// run runs the server until it serves v1.
func (l *living) run(ctx context.Context, t *testing.T) {
	t.Helper()
	go func() { l.ran <- l.Run(ctx, app.Connected(l.world.Coord)) }()
	l.until(t, "v1 is served", func() bool { return l.ask(t, http.MethodGet, "/") == "200 v1" })
}

func (l *living) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited two minutes until %s", what)
		}
	}
}

// ask returns the status and the body of an answer, or the reason in it.
func (l *living) ask(t *testing.T, method, path string) string {
	t.Helper()
	return fetch(t, l.http, method, path)
}

func fetch(t *testing.T, s *httptest.Server, method, path string) string {
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	text := strings.TrimSpace(string(body))
	for _, reason := range []string{"NOT_READY", "STOPPING"} {
		if strings.Contains(text, reason) && res.Header.Get("Retry-After") != "" {
			text = reason
		}
	}
	return fmt.Sprint(res.StatusCode, " ", text)
}

// later asks in another goroutine.
func (l *living) later(t *testing.T, method, path string) chan string {
	answer := make(chan string, 1)
	go func() { answer <- l.ask(t, method, path) }()
	return answer
}

func (l *living) shows(t *testing.T, path, text string) bool {
	t.Helper()
	return strings.Contains(fetch(t, l.operator, http.MethodGet, path), text)
}

// TestLife: behind an http.Server of the program, a server refuses requests before Run and after Close,
// and Close loses none that began before: neither one that runs, nor a write that a switch holds.
func TestLife(t *testing.T) {
	t.Parallel()
	l := live(t)
	if got := l.ask(t, http.MethodGet, "/"); got != "503 NOT_READY" {
		t.Errorf("before Run: %s", got)
	}
	if !l.shows(t, "/readyz", "503 the server does not run yet") || !l.shows(t, "/metrics", "go_goroutines") {
		t.Errorf("before Run: %s", fetch(t, l.operator, http.MethodGet, "/readyz"))
	}
	l.run(t.Context(), t)
	if err := l.Run(t.Context(), app.Connected(l.world.Coord)); !errors.Is(err, app.ErrRan) {
		t.Errorf("a second Run: %v", err)
	}
	slow, stream := l.later(t, http.MethodGet, "/slow"), l.later(t, http.MethodGet, "/stream")
	<-l.inside
	<-l.streaming
	l.world.Sealed(t)
	write := l.later(t, http.MethodPost, "/")
	l.until(t, "the write is held", func() bool { return l.shows(t, "/metrics", "dbcontroller_server_held_writes 1") })

	closed := make(chan error, 1)
	go func() { closed <- l.Close(t.Context()) }()
	if got := <-stream; got != "200 v1: server stops; call again" {
		t.Errorf("the stream at Close: %s", got)
	}
	if got := l.ask(t, http.MethodGet, "/"); got != "503 STOPPING" {
		t.Errorf("a request during Close: %s", got)
	}
	if !l.shows(t, "/readyz", "503 server stops") {
		t.Errorf("during Close: %s", fetch(t, l.operator, http.MethodGet, "/readyz"))
	}
	l.world.Apply(t, upgradestate.Flip{ID: "u1", Switch: upgradestate.Switch{At: "2026-01-02T03:04:05Z"}})
	if got := <-write; got != "200 v2" {
		t.Errorf("the held write: %s", got)
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned %v while a request ran", err)
	case err := <-l.ran:
		t.Errorf("Run returned %v while a request ran", err)
	default:
	}
	close(l.leave)
	if got := <-slow; got != "200 v1" {
		t.Errorf("the request that ran: %s", got)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-l.ran; err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := l.ask(t, http.MethodGet, "/"); got != "503 STOPPING" {
		t.Errorf("after Close: %s", got)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// TestEnds: Run ends with its ctx, after the requests; a Close without time ends it without them; and
// after a Close there is no Run.
func TestEnds(t *testing.T) {
	t.Parallel()
	t.Run("ctx", func(t *testing.T) {
		t.Parallel()
		l := live(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.run(ctx, t)
		slow := l.later(t, http.MethodGet, "/slow")
		<-l.inside
		cancel()
		l.until(t, "requests are refused", func() bool { return l.ask(t, http.MethodGet, "/") == "503 STOPPING" })
		close(l.leave)
		if got, err := <-slow, <-l.ran; got != "200 v1" || err != nil {
			t.Errorf("%s, and Run: %v", got, err)
		}
	})
	t.Run("no time", func(t *testing.T) {
		t.Parallel()
		l := live(t)
		l.run(t.Context(), t)
		slow := l.later(t, http.MethodGet, "/slow")
		<-l.inside
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v", err)
		}
		if err := <-l.ran; err != nil {
			t.Errorf("Run: %v", err)
		}
		close(l.leave)
		<-slow
	})
	t.Run("no Run", func(t *testing.T) {
		t.Parallel()
		l := live(t)
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, want := range []error{nil, app.ErrRan} { // the program may be told to stop before it runs the server
			if err := l.Run(t.Context(), app.Connected(l.world.Coord)); !errors.Is(err, want) {
				t.Errorf("Run after Close: %v, want %v", err, want)
			}
		}
		if got := l.ask(t, http.MethodGet, "/"); got != "503 STOPPING" {
			t.Errorf("after Close: %s", got)
		}
	})
	t.Run("no connection", func(t *testing.T) {
		t.Parallel()
		l := live(t)
		gone := errors.New("etcd is away")
		if err := l.Run(t.Context(), func(context.Context) (coord.Store, func(), error) { return nil, nil, gone }); !errors.Is(err, gone) {
			t.Errorf("Run: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
