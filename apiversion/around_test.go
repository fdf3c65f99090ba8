package apiversion_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// observing is a function that observes.
type observing func(ctx context.Context, e apiversion.Event) error

func (f observing) Observe(ctx context.Context, e apiversion.Event) error { return f(ctx, e) }

// journal keeps what it observes.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Observe(_ context.Context, e apiversion.Event) error {
	side := func(m proto.Message) string {
		if m == nil {
			return "-"
		}
		return string(m.ProtoReflect().Descriptor().FullName().Parent().Name()) + "." + string(m.ProtoReflect().Descriptor().Name())
	}
	line := fmt.Sprintf("%s %s %s by %s: %s %s", e.What, strings.TrimPrefix(e.Procedure, "/prototest.library."), strings.TrimPrefix(e.Served, "/prototest.library."), e.Caller, side(e.Old), side(e.New))
	if e.Err != nil {
		line += " " + connect.CodeOf(e.Err).String()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	return nil
}

func TestObservers(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	v2.add(text(t, bookOf(v2.service), newBook))
	var first, last journal
	var failed []string
	h := apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{
		Observers: []apiversion.Observer{
			&first,
			observing(func(context.Context, apiversion.Event) error { panic("observer is broken") }),
			observing(func(context.Context, apiversion.Event) error { return errors.New("disk is full") }),
			&last,
		},
		ObserverFailed: func(err error) { failed = append(failed, err.Error()) },
		Caller:         func(*http.Request) string { return "ann" },
	})
	c := serve(t, service(t, "v1"), h)
	c.do("GetBook", `name: "shelves/a/books/dune"`)
	for _, bad := range []struct{ method, req string }{{"GetBook", `name: "shelves/a/books/none"`}, {"ListBooks", `only_new: true`}, {"BurnBook", ``}, {"CreateBook", `book { isbn10: "x" }`}} {
		if _, err := c.try(t.Context(), bad.method, bad.req); err == nil {
			t.Errorf("%s did not fail", bad.method)
		}
	}
	want := `request v1.Library/GetBook v2.Library/GetBook by ann: v1.GetBookRequest v2.GetBookRequest
record v1.Library/GetBook v2.Library/GetBook by ann: v1.Book v2.Book
response v1.Library/GetBook v2.Library/GetBook by ann: v1.Book v2.Book
request v1.Library/GetBook v2.Library/GetBook by ann: v1.GetBookRequest v2.GetBookRequest
response v1.Library/GetBook v2.Library/GetBook by ann: - - not_found
request v1.Library/ListBooks v2.Library/SearchBooks by ann: v1.ListBooksRequest - invalid_argument
request v1.Library/BurnBook  by ann: v1.GetBookRequest - unimplemented
record v1.Library/CreateBook v2.Library/CreateBook by ann: v1.Book - unknown
request v1.Library/CreateBook v2.Library/CreateBook by ann: v1.CreateBookRequest - invalid_argument`
	for _, j := range []*journal{&first, &last} {
		if got := strings.Join(j.lines, "\n"); got != want {
			t.Errorf("observed\n%s\nwant\n%s", got, want)
		}
	}
	if len(failed) != 2*len(first.lines) || !strings.Contains(failed[0], "panic: observer is broken") || !strings.Contains(failed[1], "disk is full") {
		t.Errorf("failures %q", failed)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	v2.add(text(t, bookOf(v2.service), newBook))
	const why = "v1 is the active version: write through v1 until the upgrade is completed"
	for protocol, options := range protocols {
		for backend, handler := range backends {
			if backend == "grpc-go" && !strings.HasPrefix(protocol, "grpc ") && protocol != "grpc" {
				continue // it speaks nothing else
			}
			t.Run(protocol+" over "+backend, func(t *testing.T) {
				t.Parallel()
				c := serve(t, v2.service, apiversion.ReadOnly(handler(v2), apiversion.Readers(v2.service), why), options...)
				if protocol == "grpc" || backend == "connect" {
					c.do("GetBook", `name: "shelves/a/floors/ground/books/dune"`)
				}
				_, err := c.try(t.Context(), "CreateBook", `book { display_title: "x" }`)
				wantError(t, err, connect.CodeFailedPrecondition, why)
				if reason, meta := refusal.Of(err); reason != refusal.VersionNotActive || meta[refusal.MetaService] != "prototest.library.v2.Library" {
					t.Errorf("reason %s %v", reason, meta)
				}
			})
		}
	}
	// A caller of no known protocol is refused as well.
	w := httptest.NewRecorder()
	apiversion.ReadOnly(v2.connectHandler(), apiversion.Readers(v2.service), why).ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/prototest.library.v2.Library/CreateBook", nil))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), why) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	began := now
	u := apiversion.NewUsage(apiversion.UsageConfig{
		Services: []protoreflect.ServiceDescriptor{service(t, "v1"), service(t, "v2")}, MaxCallers: 2, Now: func() time.Time { return now },
	})
	served := 0
	h := u.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	call := func(path, agent string) {
		req := httptest.NewRequest(http.MethodPost, path, nil)
		req.Header.Set("User-Agent", agent)
		h.ServeHTTP(httptest.NewRecorder(), req)
	}
	if _, ok, since := u.LastUsed("v1"); ok || !since.Equal(began) {
		t.Error("v1 was used before the first call")
	}
	if _, used := u.Totals(); !maps.Equal(used, map[string]upgradestate.Usage{"v1": {}, "v2": {}}) {
		t.Errorf("before the first call: %v", used)
	}
	const v1, v2 = "/prototest.library.v1.Library/", "/prototest.library.v2.Library/"
	call(v1+"GetBook", "cli/1.0 (linux)")
	call(v1+"GetBook", "cli/1.1")
	now = now.Add(time.Minute)
	call(v2+"GetBook", "")
	call(v1+"GetBook", strings.Repeat("x", 1000)) // the third caller
	call(v1+"GetBook", "yet another")
	call("/elsewhere", "cli/1.0")
	if served != 6 {
		t.Errorf("%d calls were served", served)
	}
	want := `{"since":"2026-01-02T03:04:05Z","counts":[` +
		`{"version":"v1","method":"prototest.library.v1.Library/GetBook","caller":"cli","calls":2,"lastUsed":"2026-01-02T03:04:05Z"},` +
		`{"version":"v1","method":"prototest.library.v1.Library/GetBook","caller":"other","calls":2,"lastUsed":"2026-01-02T03:05:05Z"},` +
		`{"version":"v2","method":"prototest.library.v2.Library/GetBook","caller":"unknown","calls":1,"lastUsed":"2026-01-02T03:05:05Z"}]}`
	w := httptest.NewRecorder()
	u.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b, err := json.Marshal(u); err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	if last, ok, _ := u.LastUsed("v1"); !ok || !last.Equal(now) {
		t.Errorf("v1 was last used %s, %t", last, ok)
	}
	since, used := u.Totals()
	wantUsed := map[string]upgradestate.Usage{"v1": {Calls: 4, Last: "2026-01-02T03:05:00Z"}, "v2": {Calls: 1, Last: "2026-01-02T03:05:00Z"}}
	if !since.Equal(began) || !maps.Equal(used, wantUsed) {
		t.Errorf("since %s %v, want %v", since, used, wantUsed)
	}
}
