package apiversion_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion"
)

type upload = connect.ClientStreamForClient[message, message]

// upload begins a stream of a client.
func (c client) upload(ctx context.Context, requests ...string) *upload {
	c.tb.Helper()
	m, cl := c.method("ImportBooks")
	s := cl.CallClientStream(ctx)
	for _, req := range requests {
		_ = s.Send(text(c.tb, m.Input(), req)) // the answer has the reason
	}
	return s
}

func createDune(n int) string {
	return `parent: "shelves/a" book { ` + strings.Replace(oldBook, "books/dune", fmt.Sprintf("books/dune%d", n), 1) + ` }`
}

func TestUpload(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, v2 *library, c client) {
		res, err := c.upload(t.Context(), createDune(1), createDune(2), createDune(3)).CloseAndReceive()
		if err != nil || get(res.Msg, "created").Int() != 3 {
			t.Fatalf("%v, %v", res, err)
		}
		for _, n := range []string{"1", "2", "3"} {
			wantMessage(t, v2.book(t, "shelves/a/floors/ground/books/dune"+n), strings.Replace(newBook, "books/dune", "books/dune"+n, 1))
		}
		if res, err := c.upload(t.Context()).CloseAndReceive(); err != nil || get(res.Msg, "created").Int() != 0 {
			t.Errorf("an empty stream: %v, %v", res, err)
		}

		// A message that v2 cannot express ends the stream. The handler never takes it for the end.
		_, err = c.upload(t.Context(), createDune(4), strings.Replace(createDune(5), `"412"`, `"many"`, 1), createDune(6)).CloseAndReceive()
		wantError(t, err, connect.CodeInvalidArgument, "many")
		if field := violated(err); field != "book.pages" {
			t.Errorf("it blames %q", field)
		}
		<-v2.broken
		// An error of the handler is the answer, with the client's field, whatever the client still sends.
		_, err = c.upload(t.Context(), createDune(4), strings.Replace(createDune(5), `title: "Dune"`, "", 1), createDune(6)).CloseAndReceive()
		wantError(t, err, connect.CodeInvalidArgument, "must not be empty")
		if field := violated(err); field != "book.title" {
			t.Errorf("it blames %q", field)
		}
		v2.mu.Lock()
		defer v2.mu.Unlock()
		if len(v2.books) != 3 {
			t.Errorf("there are %d books", len(v2.books))
		}
	})
}

// TestUploadIsBounded: a client that sends without an end is read as fast as the new handler reads.
func TestUploadIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, uploadIsBounded)
}

func uploadIsBounded(t *testing.T) {
	release := make(chan struct{})
	var received, sent atomic.Int64
	m := service(t, "v2").Methods().ByName("ImportBooks")
	slow := connect.NewClientStreamHandler(apiversion.Procedure(m), func(_ context.Context, in *connect.ClientStream[message]) (*connect.Response[message], error) {
		<-release
		for in.Receive() {
			received.Add(1)
		}
		return connect.NewResponse(dynamicpb.NewMessage(m.Output())), in.Err()
	}, connect.WithSchema(m), connect.WithRequestInitializer(func(_ connect.Spec, v any) error {
		*v.(*message) = *dynamicpb.NewMessage(m.Input())
		return nil
	}))
	c := direct(t, service(t, "v1"), apiversion.NewHandler(libraryTable(t), slow, apiversion.Options{}))
	s := c.upload(t.Context())
	old, _ := c.method("ImportBooks")
	const messages = 200
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range messages {
			_ = s.Send(text(t, old.Input(), createDune(n)))
			sent.Add(1)
		}
	}()
	// Two pipes hold what was sent and not read: a message in each, and the one that is translated.
	synctest.Wait()
	if n := sent.Load(); n > 5 {
		t.Errorf("%d messages were sent and none was read", n)
	}
	close(release)
	<-done
	if _, err := s.CloseAndReceive(); err != nil || received.Load() != messages {
		t.Errorf("%d were received: %v", received.Load(), err)
	}
}

// TestUploadAnsweredEarly: a handler that answers before the end of the stream is not waited for.
func TestUploadAnsweredEarly(t *testing.T) {
	t.Parallel()
	m := service(t, "v2").Methods().ByName("ImportBooks")
	early := connect.NewClientStreamHandler(apiversion.Procedure(m), func(_ context.Context, in *connect.ClientStream[message]) (*connect.Response[message], error) {
		in.Receive()
		out := dynamicpb.NewMessage(m.Output())
		put(out, "created", int64(7))
		return connect.NewResponse(out), nil
	}, connect.WithSchema(m), connect.WithRequestInitializer(func(_ connect.Spec, v any) error {
		*v.(*message) = *dynamicpb.NewMessage(m.Input())
		return nil
	}))
	c := serve(t, service(t, "v1"), apiversion.NewHandler(libraryTable(t), early, apiversion.Options{}))
	res, err := c.upload(t.Context(), createDune(1), createDune(2), createDune(3), createDune(4)).CloseAndReceive()
	if err != nil || get(res.Msg, "created").Int() != 7 {
		t.Errorf("%v, %v", res, err)
	}
}

// TestUploadOfAClientThatLeaves: the handler gets an error, and not the end of the stream.
func TestUploadOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	ended := make(chan struct{})
	h := apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{})
	c := serve(t, service(t, "v1"), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, req)
	}))
	ctx, leave := context.WithCancel(t.Context())
	s := c.upload(ctx, createDune(1), createDune(2))
	<-v2.arrived
	<-v2.arrived
	leave()
	<-ended
	<-v2.broken
	if _, err := s.CloseAndReceive(); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("%v", err)
	}
	v2.mu.Lock()
	defer v2.mu.Unlock()
	if len(v2.books) != 0 {
		t.Errorf("there are %d books of a stream without an end", len(v2.books))
	}
}
