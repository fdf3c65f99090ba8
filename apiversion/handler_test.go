package apiversion_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/refusal"
)

var protocols = map[string][]connect.ClientOption{
	"connect":      nil,
	"connect json": {connect.WithProtoJSON()},
	"grpc":         {connect.WithGRPC()},
	"grpc json":    {connect.WithGRPC(), connect.WithProtoJSON()},
	"grpc-web":     {connect.WithGRPCWeb()},
}

var backends = map[string]func(*library) http.Handler{
	"connect": func(l *library) http.Handler { return l.connectHandler() },
	"grpc-go": (*library).grpcHandler,
}

// everyWay runs a test for every protocol of the client and kind of handler.
func everyWay(t *testing.T, test func(t *testing.T, v2 *library, c client)) {
	for protocol, options := range protocols {
		for backend, handler := range backends {
			t.Run(protocol+" over "+backend, func(t *testing.T) {
				t.Parallel()
				v2 := newLibrary(service(t, "v2"))
				h := apiversion.NewHandler(libraryTable(t), handler(v2), apiversion.Options{})
				test(t, v2, serve(t, service(t, "v1"), h, options...))
			})
		}
	}
}

// everything is what "*" means, which masks in JSON cannot express.
const everything = `paths: "title" paths: "author" paths: "pages" paths: "state" paths: "labels" paths: "tags" paths: "place" paths: "bought" paths: "rating"`

const (
	oldBook = `name: "shelves/a/books/dune" title: "Dune" author: "Frank van Herbert" pages: "412" state: LENT labels { key: "k" value: "v" } tags: "sf" place { room: "r1" row: 3 } bought { seconds: 5 nanos: 7 } rating: 0`
	newBook = `name: "shelves/a/floors/ground/books/dune" display_title: "Dune" first_name: "Frank" last_name: "van Herbert" page_count: 412 state: LENT labels { key: "k" value: "v" } tags: "sf" place { hall: "r1" row: 3 } bought { seconds: 5 nanos: 7 } rating: 0 summary: "none yet"`
)

func withoutEtag(m *message) *message {
	m = proto.CloneOf(m)
	m.Clear(m.Descriptor().Fields().ByName("etag"))
	return m
}

func wantMessage(t *testing.T, got *message, want string) {
	t.Helper()
	if w := text(t, got.Descriptor(), want); !proto.Equal(withoutEtag(got), w) {
		t.Errorf("got  %v\nwant %v", got, w)
	}
}

func TestOldVersionOverNew(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, v2 *library, c client) {
		made := c.do("CreateBook", `parent: "shelves/a" book { `+oldBook+` }`)
		wantMessage(t, made, oldBook)
		const name = "shelves/a/floors/ground/books/dune"
		wantMessage(t, v2.book(t, name), newBook)
		wantMessage(t, c.do("GetBook", `name: "shelves/a/books/dune"`), oldBook)
		wantMessage(t, c.do("GetBook", `name: "shelves/a/books/dune" read_mask { paths: "author" paths: "place.room" }`),
			`author: "Frank van Herbert" place { room: "r1" }`)

		// A change in the new version is seen at once, and what the old one does not know
		// survives its edits.
		b := v2.book(t, name)
		put(b, "summary", "sand")
		put(b, "page_count", int32(7))
		v2.add(b)
		changed := c.do("UpdateBook", `book { name: "shelves/a/books/dune" title: "Dune II" place { row: 9 } tags: "ignored" } update_mask { paths: "title" paths: "place.row" }`)
		wantMessage(t, changed, strings.NewReplacer(`"Dune"`, `"Dune II"`, "row: 3", "row: 9", `"412"`, `"7"`).Replace(oldBook))
		wantMessage(t, v2.book(t, name), strings.NewReplacer(`"Dune"`, `"Dune II"`, "row: 3", "row: 9", `412`, `7`, "none yet", "sand").Replace(newBook))

		// The mask may be empty: what is set is changed.
		c.do("UpdateBook", `book { name: "shelves/a/books/dune" author: "Paul Atreides" }`)
		if b := v2.book(t, name); get(b, "first_name").String() != "Paul" || get(b, "last_name").String() != "Atreides" || get(b, "page_count").Int() != 7 {
			t.Errorf("after an update without mask: %v", b)
		}
		c.do("UpdateBook", `book { name: "shelves/a/books/dune" title: "Bare" } update_mask { `+everything+` }`)
		wantMessage(t, v2.book(t, name), `name: "shelves/a/floors/ground/books/dune" display_title: "Bare" summary: "sand"`)

		lent := c.do("LendBook", `name: "shelves/a/books/dune" reader: "ann"`)
		wantMessage(t, lent, `name: "shelves/a/books/dune" title: "Bare" state: LENT labels { key: "reader" value: "ann for 14 days" }`)

		c.do("DeleteBook", `name: "shelves/a/books/dune"`)
		_, err := c.try(t.Context(), "GetBook", `name: "shelves/a/books/dune"`)
		wantError(t, err, connect.CodeNotFound, `book "shelves/a/books/dune" is not there`)
		coded := new(connect.Error)
		if errors.As(err, &coded); len(coded.Details()) != 1 || coded.Details()[0].Type() != "google.rpc.ErrorInfo" {
			t.Errorf("details %v", coded.Details())
		}
	})
}

func wantError(t *testing.T, err error, code connect.Code, part string) {
	t.Helper()
	if connect.CodeOf(err) != code || !strings.Contains(err.Error(), part) {
		t.Errorf("error is %v, want %s with %q", err, code, part)
	}
}

// violated returns the field that an error's BadRequest detail names.
func violated(err error) string {
	coded := new(connect.Error)
	if errors.As(err, &coded) {
		for _, d := range coded.Details() {
			if v, err := d.Value(); err == nil {
				if bad, ok := v.(*errdetails.BadRequest); ok {
					return bad.FieldViolations[0].Field
				}
			}
		}
	}
	return ""
}

func TestWhatCannotBeExpressedIsAnError(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, v2 *library, c client) {
		c.do("CreateBook", `book { `+oldBook+` }`)
		for _, tc := range []struct {
			method, req, field, want string
			code                     connect.Code
		}{
			{"CreateBook", `book { name: "shelves/a/books/x" title: "x" isbn10: "0" }`, "book.isbn10", "book.isbn10: has a value that the other version cannot hold", connect.CodeInvalidArgument},
			{"CreateBook", `book { name: "shelves/a/books/x" title: "x" pages: "many" }`, "book.pages", `book.pages: is "many" (string): the value cannot be converted`, connect.CodeInvalidArgument},
			{"CreateBook", `book { name: "shelves/a/books/x" title: "x" pages: "012" }`, "book.pages", "the value cannot be converted", connect.CodeInvalidArgument},
			{"CreateBook", `book { name: "cupboards/a" title: "x" }`, "book.name", `"cupboards/a" is not of the form shelves/{shelf}/books/{book}`, connect.CodeInvalidArgument},
			// The new handler's own error, in the client's words.
			{"CreateBook", `book { name: "shelves/a/books/x" }`, "book.title", "book.title: must not be empty", connect.CodeInvalidArgument},
			{"ListBooks", `only_new: true`, "only_new", "only_new: is no longer supported: leave it unset", connect.CodeInvalidArgument},
			{"ListBooks", `filter: "isbn10 == \"1\""`, "filter", "isbn10: the other version does not have it", connect.CodeInvalidArgument},
			{"ListBooks", `filter: "author.contains(\"F\")"`, "filter", "author: only ==, in and has can be mapped", connect.CodeInvalidArgument},
			{"ListBooks", `filter: "nme == \"1\""`, "filter", "has no field nme", connect.CodeInvalidArgument},
			{"ListBooks", `order_by: "pages"`, "order_by", "pages: it has other values in the other version", connect.CodeInvalidArgument},
			{"ListBooks", `page_token: "x"`, "page_token", "page_token: is not a token", connect.CodeInvalidArgument},
			{"ListBooks", `read_mask { paths: "nme" }`, "read_mask", "has no field nme", connect.CodeInvalidArgument},
			{"UpdateBook", `book { name: "shelves/a/books/dune" } update_mask { paths: "isbn10" }`, "update_mask", "isbn10: the other version does not have it", connect.CodeInvalidArgument},
			{"UpdateBook", `book { name: "shelves/a/books/dune" } update_mask { paths: "nme" }`, "update_mask", "has no field nme", connect.CodeInvalidArgument},
			{"UpdateBook", `book { name: "shelves/a/books/none" title: "x" } update_mask { paths: "title" }`, "", `"shelves/a/books/none" is not there`, connect.CodeNotFound},
			{"UpdateBook", `book { name: "shelves/a/books/dune" title: "x" etag: "0" } update_mask { paths: "title" }`, "", "etag has changed", connect.CodeAborted},
			{"BurnBook", `name: "shelves/a/books/dune"`, "", "BurnBook is discontinued: use DeleteBook", connect.CodeUnimplemented},
		} {
			_, err := c.try(t.Context(), tc.method, tc.req)
			if connect.CodeOf(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.want) || violated(err) != tc.field {
				t.Errorf("%s %s: field %q, error %v", tc.method, tc.req, violated(err), err)
			}
			if reason, _ := refusal.Of(err); (reason == refusal.MethodDiscontinued) != (tc.code == connect.CodeUnimplemented) {
				t.Errorf("%s: reason %q", tc.method, reason)
			}
		}
		// What v1 cannot show is no half answer either.
		v2.add(text(t, bookOf(v2.service), `name: "shelves/a/floors/second/books/x" display_title: "x"`))
		_, err := c.try(t.Context(), "ListBooks", `parent: ""`)
		wantError(t, err, connect.CodeDataLoss, `the other version has records of floor "ground" only`)
	})
}

func TestStreams(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, v2 *library, c client) {
		v2.add(text(t, bookOf(v2.service), newBook))
		m, cl := c.method("WatchBooks")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := cl.CallServerStream(ctx, connect.NewRequest(text(t, m.Input(), `filter: "pages in [\"412\", \"7\"] && author == \"Frank van Herbert\""`)))
		if err != nil {
			t.Fatal(err)
		}
		next := func() *message {
			t.Helper()
			if !stream.Receive() {
				t.Fatal(stream.Err())
			}
			return stream.Msg()
		}
		e := next()
		wantMessage(t, get(e, "book").Message().Interface().(*message), oldBook)
		if get(e, "name").String() != "shelves/a/books/dune" || get(e, "kind").Enum() != 1 {
			t.Errorf("event %v", e)
		}
		// While the stream is open, what is changed arrives.
		b := v2.book(t, "shelves/a/floors/ground/books/dune")
		put(b, "page_count", int32(7))
		v2.add(b)
		if e := next(); get(get(e, "book").Message(), "pages").String() != "7" {
			t.Errorf("event %v", e)
		}
		put(b, "page_count", int32(8)) // the filter leaves it out
		v2.add(b)
		put(b, "page_count", int32(7))
		put(b, "name", "shelves/z/floors/ground/books/stop")
		v2.add(b)
		next()
		if stream.Receive() {
			t.Fatal("another event")
		}
		wantError(t, stream.Err(), connect.CodeResourceExhausted, "enough")
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCancelledStreamEndsTheInnerOne: goleak would find the handler's goroutine.
func TestCancelledStreamEndsTheInnerOne(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, v2 *library, c client) {
		v2.add(text(t, bookOf(v2.service), newBook))
		m, cl := c.method("WatchBooks")
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := cl.CallServerStream(ctx, connect.NewRequest(text(t, m.Input(), ``)))
		if err != nil || !stream.Receive() {
			t.Fatal(err, stream.Err())
		}
		cancel()
		for stream.Receive() {
		}
		wantError(t, stream.Err(), connect.CodeCanceled, "")
		_ = stream.Close()
	})
}

func TestDeadlineReachesTheInnerHandler(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, v2 *library, c client) {
		ended := make(chan error, 8)
		v2.before = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}
		// On a busy machine a short deadline passes before the inner handler is reached.
		for limit := 100 * time.Millisecond; limit < time.Minute; limit *= 4 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err := c.try(ctx, "GetBook", `name: "shelves/a/books/dune"`)
			cancel()
			wantError(t, err, connect.CodeDeadlineExceeded, "")
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the inner handler was not cancelled")
				}
				return
			case <-time.After(limit):
			}
		}
		t.Error("the inner handler was never reached, or never cancelled")
	})
}

func TestLargeMessages(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	everyWay(t, func(t *testing.T, v2 *library, c client) {
		title := strings.Repeat("long ", 1<<18)
		made := c.do("CreateBook", `book { name: "shelves/a/books/long" title: "`+title+`" }`)
		if get(made, "title").String() != title {
			t.Error("the title was changed")
		}
	})
}

// TestContextAndHeadersPass: a write gate's pass is in the context.
func TestContextAndHeadersPass(t *testing.T) {
	t.Parallel()
	for backend, handler := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			v2 := newLibrary(service(t, "v2"))
			v2.add(text(t, bookOf(v2.service), newBook))
			inner := apiversion.NewHandler(libraryTable(t), handler(v2), apiversion.Options{})
			c := serve(t, service(t, "v1"), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				inner.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), contextKey{}, "pass")))
			}))
			m, cl := c.method("GetBook")
			req := connect.NewRequest(text(t, m.Input(), `name: "shelves/a/books/dune"`))
			req.Header().Set("Authorization", "secret")
			resp, err := cl.CallUnary(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			v2.mu.Lock()
			defer v2.mu.Unlock()
			if v2.value != "pass" {
				t.Errorf("the context has %v", v2.value)
			}
			if backend == "grpc-go" {
				return // this library sets and reads headers with Connect only
			}
			if v2.seen.Get("Authorization") != "secret" {
				t.Errorf("headers %v", v2.seen)
			}
			if resp.Header().Get("Library") != "open" || resp.Trailer().Get("Closing") != "soon" {
				t.Errorf("header %v, trailer %v", resp.Header(), resp.Trailer())
			}
		})
	}
}

func TestPanicOfTheInnerHandler(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	v2.before = func(context.Context, string) error { panic("broken") }
	c := serve(t, service(t, "v1"), apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{}))
	_, err := c.try(t.Context(), "GetBook", `name: "shelves/a/books/dune"`)
	wantError(t, err, connect.CodeInternal, "panicked")
}

// TestReplace: what v1 does not know stays when v1 replaces all it knows.
func TestReplace(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	v2.add(text(t, bookOf(v2.service), strings.Replace(newBook, "none yet", "sand", 1)))
	c := serve(t, service(t, "v1"), apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{}))
	c.do("UpdateBook", `book { name: "shelves/a/books/dune" title: "Bare" } update_mask { paths: "*" }`)
	wantMessage(t, v2.book(t, "shelves/a/floors/ground/books/dune"), `name: "shelves/a/floors/ground/books/dune" display_title: "Bare" summary: "sand"`)
}

// TestNewerByOlder serves v2 by the handlers of v1.
func TestNewerByOlder(t *testing.T) {
	t.Parallel()
	table := backTable(t)
	for backend, handler := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			v1 := newLibrary(service(t, "v1"))
			c := serve(t, service(t, "v2"), apiversion.NewHandler(table, handler(v1), apiversion.Options{}))
			made := c.do("CreateBook", `book { `+newBook+` }`)
			wantMessage(t, made, newBook)
			wantMessage(t, v1.book(t, "shelves/a/books/dune"), oldBook)
			c.do("UpdateBook", `book { name: "shelves/a/floors/ground/books/dune" page_count: 5 first_name: "F" last_name: "H" } update_mask { paths: "page_count" paths: "first_name" paths: "last_name" }`)
			if b := v1.book(t, "shelves/a/books/dune"); get(b, "pages").String() != "5" || get(b, "author").String() != "F H" {
				t.Errorf("after the update: %v", b)
			}
			found := c.do("SearchBooks", `filter: "page_count == 5 && place.hall == \"r1\""`)
			if get(found, "results").List().Len() != 1 {
				t.Errorf("found %v", found)
			}
			_, err := c.try(t.Context(), "UpdateBook", `book { name: "shelves/a/floors/ground/books/dune" first_name: "G" } update_mask { paths: "first_name" }`)
			wantError(t, err, connect.CodeInvalidArgument, "first_name: can only be changed together with last_name")
			_, err = c.try(t.Context(), "SearchBooks", `filter: "last_name == \"H\""`)
			wantError(t, err, connect.CodeInvalidArgument, "last_name: first_name, last_name is joined into author: it can be compared only together with first_name")
			_, err = c.try(t.Context(), "CheckOut", `name: "shelves/a/floors/ground/books/dune"`)
			wantError(t, err, connect.CodeUnimplemented, "use LendBook")
		})
	}
}
