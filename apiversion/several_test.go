package apiversion_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
)

// burning is the library's table with BurnBook served by two requests: the book is lent to
// nobody, so that readers are told, and deleted.
func burning(t *testing.T, edit func(*apiversion.Method)) (*apiversion.Table, error) {
	t.Helper()
	cfg := libraryConfig(t, bookResource(t))
	m := &cfg.Methods[2]
	*m = apiversion.Method{
		Old: "BurnBook",
		Requests: func(_ context.Context, old proto.Message) ([]apiversion.Call, error) {
			name := get(old.ProtoReflect(), "name").String()
			if name == "" {
				return nil, errors.New("which one?")
			}
			name = strings.Replace(name, "/books/", "/floors/ground/books/", 1)
			methods := cfg.New.Methods()
			lend := text(t, methods.ByName("CheckOut").Input(), fmt.Sprintf(`name: %q loan { reader: "fire" }`, name))
			return []apiversion.Call{{Method: "CheckOut", Request: lend}, {Method: "DeleteBook", Request: text(t, methods.ByName("DeleteBook").Input(), fmt.Sprintf("name: %q", name))}}, nil
		},
		Responses: func(_ context.Context, _ proto.Message, now []proto.Message, _ *message) error {
			if len(now) != 2 {
				return fmt.Errorf("%d responses", len(now))
			}
			return nil
		},
	}
	if edit != nil {
		edit(m)
	}
	return apiversion.NewTable(cfg)
}

// again runs what writes together twice, as a store does when others have changed something.
func again(runs int, end error) func(context.Context, func(context.Context) error) error {
	return func(ctx context.Context, do func(context.Context) error) error {
		for range runs {
			if err := do(ctx); err != nil {
				return err
			}
		}
		return end
	}
}

// TestSeveralAreObservedOnce: observers see the requests that counted and what came of them, in
// the end, however often they were made.
func TestSeveralAreObservedOnce(t *testing.T) {
	t.Parallel()
	table, err := burning(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		end  error
		code connect.Code
		want string
	}{
		"done": {nil, 0, `request v1.Library/BurnBook v2.Library/CheckOut by ann: v1.GetBookRequest v2.CheckOutRequest
response v1.Library/BurnBook v2.Library/CheckOut by ann: - v2.CheckOutResponse
request v1.Library/BurnBook v2.Library/DeleteBook by ann: v1.GetBookRequest v2.DeleteBookRequest
response v1.Library/BurnBook v2.Library/DeleteBook by ann: - protobuf.Empty
response v1.Library/BurnBook  by ann: protobuf.Empty -`},
		"not written": {errors.New("no answer"), connect.CodeUnavailable, `request v1.Library/BurnBook v2.Library/CheckOut by ann: v1.GetBookRequest v2.CheckOutRequest
response v1.Library/BurnBook v2.Library/CheckOut by ann: - v2.CheckOutResponse
request v1.Library/BurnBook v2.Library/DeleteBook by ann: v1.GetBookRequest v2.DeleteBookRequest
response v1.Library/BurnBook v2.Library/DeleteBook by ann: - protobuf.Empty
response v1.Library/BurnBook  by ann: - - unavailable`},
	} {
		v2 := newLibrary(service(t, "v2"))
		var seen journal
		runs := 0
		together := func(ctx context.Context, do func(context.Context) error) error {
			return again(2, tc.end)(ctx, func(ctx context.Context) error {
				runs++
				v2.add(text(t, bookOf(v2.service), newBook)) // the library writes at once: undo it
				return do(ctx)
			})
		}
		c := serve(t, service(t, "v1"), apiversion.NewHandler(table, v2.connectHandler(), apiversion.Options{
			Together: together, Observers: []apiversion.Observer{&seen}, Caller: func(*http.Request) string { return "ann" },
		}))
		_, err := c.try(t.Context(), "BurnBook", `name: "shelves/a/books/dune"`)
		if (err == nil) != (tc.code == 0) || err != nil && connect.CodeOf(err) != tc.code || runs != 2 {
			t.Errorf("%s, after %d runs: %v", name, runs, err)
		}
		if got := strings.Join(seen.lines, "\n"); got != tc.want {
			t.Errorf("%s: observed\n%s\nwant\n%s", name, got, tc.want)
		}
		_, err = c.try(t.Context(), "BurnBook", "")
		wantError(t, err, connect.CodeInvalidArgument, "which one?")
	}
}

func TestSeveralAreChecked(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(*apiversion.Method){
		"it has Requests and no Responses":                        func(m *apiversion.Method) { m.Responses = nil },
		"its Requests take the place of New":                      func(m *apiversion.Method) { m.New = "DeleteBook" },
		"it is discontinued and served by several requests":       func(m *apiversion.Method) { m.Discontinued = "use fire" },
		"it streams, and cannot be served by several requests":    func(m *apiversion.Method) { m.Old = "WatchBooks" },
		"its Responses are of Requests, and there are none of th": func(m *apiversion.Method) { m.Requests, m.New = nil, "DeleteBook" },
	} {
		if _, err := burning(t, edit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	table, err := burning(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if said := fmt.Sprint(recover()); !strings.Contains(said, "set Options.Together") {
				t.Errorf("without Together: %s", said)
			}
		}()
		apiversion.NewHandler(table, http.NotFoundHandler(), apiversion.Options{})
	}()
}

// counting counts the procedures that it was asked for.
type counting struct {
	mu    sync.Mutex
	asked []string
}

func (c *counting) note(procedure string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, strings.TrimPrefix(procedure, "/prototest.library."))
}

func (c *counting) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		c.note(req.Spec().Procedure)
		return next(ctx, req)
	}
}

func (*counting) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (c *counting) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c.note(conn.Spec().Procedure)
		return next(ctx, conn)
	}
}

// TestOnce: through two translations, of an update (which reads first) and of a stream, an
// interceptor that all handlers have runs once, for the procedure that the client called; and
// one that only the innermost has is not left out.
func TestOnce(t *testing.T) {
	t.Parallel()
	forward, back := libraryTable(t), backTable(t)
	for name, outer := range map[string]bool{"all": true, "innermost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &counting{}
			interceptors := connect.WithInterceptors(apiversion.Once(asked))
			opts := apiversion.Options{}
			if outer {
				opts.Handler = []connect.HandlerOption{interceptors}
			}
			v1 := newLibrary(service(t, "v1"))
			v1.add(text(t, bookOf(v1.service), `name: "shelves/a/books/dune" title: "Dune"`))
			// v1 over v2 over v1: handler over handler over handler.
			c := serve(t, v1.service, apiversion.NewHandler(forward, apiversion.NewHandler(back, v1.connectHandler(interceptors), opts), opts))
			update := func(title string) {
				t.Helper()
				got := c.do("UpdateBook", `book { name: "shelves/a/books/dune" title: "`+title+`" } update_mask { paths: "title" }`)
				if get(got, "title").String() != title {
					t.Errorf("updated to %v", got)
				}
			}
			update("Dune II")
			ctx, cancel := context.WithCancel(t.Context())
			_, cl := c.method("WatchBooks")
			stream, err := cl.CallServerStream(ctx, connect.NewRequest(text(t, v1.service.Methods().ByName("WatchBooks").Input(), "")))
			if err != nil {
				t.Fatal(err)
			}
			if !stream.Receive() {
				t.Errorf("watch: %v", stream.Err())
			}
			cancel()
			_ = stream.Close()
			update("Dune III")
			asked.mu.Lock()
			defer asked.mu.Unlock()
			got := strings.Join(asked.asked, " ")
			if outer && got != "v1.Library/UpdateBook v1.Library/WatchBooks v1.Library/UpdateBook" {
				t.Errorf("asked for %s", got)
			}
			for _, procedure := range []string{"v1.Library/UpdateBook", "v1.Library/WatchBooks"} {
				if !strings.Contains(got, procedure) {
					t.Errorf("not asked for %s: %s", procedure, got)
				}
			}
		})
	}
}
