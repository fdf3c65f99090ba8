package inprocess_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dbcontroller.dev/internal/base/inprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type text = wrapperspb.StringValue

type valueKey struct{}

// protocols are what a generated client speaks.
var protocols = map[string][]connect.ClientOption{
	"connect":      nil,
	"connect json": {connect.WithProtoJSON()},
	"connect get":  {connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
	"grpc":         {connect.WithGRPC()},
	"grpc-web":     {connect.WithGRPCWeb()},
}

func TestUnary(t *testing.T) {
	t.Parallel()
	h := connect.NewUnaryHandler("/s/m", func(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
		if req.Msg.GetValue() == "refuse" {
			err := connect.NewError(connect.CodeAborted, errors.New("refused"))
			err.Meta().Set("Why", "asked for")
			return nil, err
		}
		res := connect.NewResponse(wrapperspb.String(fmt.Sprintf("%s %v %s", req.Msg.GetValue(), ctx.Value(valueKey{}), req.Header().Get("In"))))
		res.Header().Set("Out", "header")
		res.Trailer().Set("After", "trailer")
		return res, nil
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects))
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect.NewClient[text, text](inprocess.Client(h), "http://nowhere/s/m", opts...)
			ctx := context.WithValue(t.Context(), valueKey{}, "value")
			req := connect.NewRequest(wrapperspb.String("hello"))
			req.Header().Set("In", "in")
			res, err := c.CallUnary(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			if got := res.Msg.GetValue(); got != "hello value in" {
				t.Errorf("got %q", got)
			}
			if res.Header().Get("Out") != "header" || res.Trailer().Get("After") != "trailer" {
				t.Errorf("header %v, trailer %v", res.Header(), res.Trailer())
			}
			_, err = c.CallUnary(ctx, connect.NewRequest(wrapperspb.String("refuse")))
			var coded *connect.Error
			if !errors.As(err, &coded) || coded.Code() != connect.CodeAborted || coded.Meta().Get("Why") != "asked for" {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestServerStream: messages arrive while the handler runs, and each when it is read.
func TestServerStream(t *testing.T) {
	t.Parallel()
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := make(chan struct{})
			h := connect.NewServerStreamHandler("/s/m", func(ctx context.Context, _ *connect.Request[text], s *connect.ServerStream[text]) error {
				for i := range 3 {
					if err := s.Send(wrapperspb.String(fmt.Sprint(i))); err != nil {
						return err
					}
					<-step
				}
				return connect.NewError(connect.CodeDataLoss, errors.New("the end"))
			})
			c := connect.NewClient[text, text](inprocess.Client(h), "http://nowhere/s/m", opts...)
			s, err := c.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("")))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if !s.Receive() || s.Msg().GetValue() != fmt.Sprint(i) {
					t.Fatalf("message %d: %v, %v", i, s.Msg(), s.Err())
				}
				step <- struct{}{}
			}
			if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeDataLoss {
				t.Errorf("after the end: %v", s.Err())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCancel: the handler learns that its client has gone, in whatever it waits.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"context": func(_ http.ResponseWriter, r *http.Request) error { <-r.Context().Done(); return r.Context().Err() },
		"write":   func(w http.ResponseWriter, _ *http.Request) error { _, err := w.Write([]byte("more")); return err },
	} {
		for how, leave := range map[string]func(cancel func(), res *http.Response){
			"cancel": func(cancel func(), _ *http.Response) { cancel() },
			"close":  func(_ func(), res *http.Response) { _ = res.Body.Close() },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ended := make(chan error, 1)
					h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.(http.Flusher).Flush()
						ended <- wait(w, r)
					})
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					res := do(ctx, t, h, http.MethodGet, nil)
					synctest.Wait()
					cause := errors.New("the flip")
					leave(func() { cancel(cause) }, res)
					if err := <-ended; err == nil {
						t.Error("the handler was told nothing")
					}
					synctest.Wait()
					if _, err := res.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || (how == "cancel" && !errors.Is(err, cause)) {
						t.Errorf("the client reads on: %v", err)
					}
					_ = res.Body.Close()
				})
			})
		}
	}
}

// TestCancelBeforeTheHeaders does not wait for the handler.
func TestCancelBeforeTheHeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-goOn })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { synctest.Wait(); cancel() }()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nowhere/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := inprocess.Client(h).Do(req)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", res, err)
		}
		if err == nil {
			_ = res.Body.Close()
		}
		close(goOn)
	})
}

func do(ctx context.Context, t *testing.T, h http.Handler, method string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://nowhere/path?q=1", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := inprocess.Client(h).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestRequestAndResponse(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != "in" || r.Proto != "HTTP/2.0" || r.Host != "nowhere" || r.RequestURI != "/path?q=1" || r.URL.Host != "" || r.URL.Path != "/path" {
			t.Errorf("%s %v %+v", got, err, r)
		}
		w.Header().Set("Trailer", "Declared, Missing")
		w.Header().Set("Content-Length", "3")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
		w.Header().Set("Late", "lost")
		_, _ = io.WriteString(w, "out")
		w.Header().Set("Declared", "1")
		w.Header().Set(http.TrailerPrefix+"free", "2")
	})
	res := do(t.Context(), t, h, http.MethodPost, strings.NewReader("in"))
	defer res.Body.Close() //nolint:errcheck // a test
	if res.StatusCode != http.StatusTeapot || res.ContentLength != 3 || res.ProtoMajor != 2 || res.Header.Get("Late") != "" || res.Header.Get("Trailer") != "" {
		t.Errorf("%+v", res)
	}
	out, err := io.ReadAll(res.Body)
	if err != nil || string(out) != "out" {
		t.Errorf("%s, %v", out, err)
	}
	if res.Trailer.Get("Declared") != "1" || res.Trailer.Get("Free") != "2" {
		t.Errorf("trailer %v", res.Trailer)
	}
}

// TestWithoutBody: handlers may write where the protocol has no body.
// TestTrailersBeforeTheEnd: trailers come with the end of the body, as by HTTP/2. A client that was
// cancelled may look at them at any time, so a handler that returns must not touch them.
func TestTrailersBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Declared")
			_, _ = io.WriteString(w, "all")
			w.Header().Set("Declared", "1")
			w.Header().Set(http.TrailerPrefix+"free", "2")
		})
		res := do(t.Context(), t, h, http.MethodGet, nil)
		defer res.Body.Close() //nolint:errcheck // read to its end
		if _, err := io.ReadFull(res.Body, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the handler has returned
		if values, ok := res.Trailer["Declared"]; !ok || values != nil || len(res.Trailer) != 1 {
			t.Errorf("before the end, the trailer is %v", res.Trailer)
		}
		if rest, err := io.ReadAll(res.Body); len(rest) != 0 || err != nil {
			t.Errorf("after the end come %q, %v", rest, err)
		}
		if res.Trailer.Get("Declared") != "1" || res.Trailer.Get("Free") != "2" {
			t.Errorf("after the end, the trailer is %v", res.Trailer)
		}
	})
}

func TestWithoutBody(t *testing.T) {
	t.Parallel()
	for method, status := range map[string]int{http.MethodHead: http.StatusOK, http.MethodGet: http.StatusNoContent} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "out")
		})
		res := do(t.Context(), t, h, method, nil)
		if out, err := io.ReadAll(res.Body); err != nil || len(out) > 0 || res.StatusCode != status {
			t.Errorf("%s: %d %q %v", method, res.StatusCode, out, err)
		}
		_ = res.Body.Close()
	}
}

// TestPanic reaches the client as an error, before the headers and after them.
func TestPanic(t *testing.T) {
	t.Parallel()
	var failed *inprocess.PanicError
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://nowhere/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := inprocess.Client(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })).Do(req)
	if !errors.As(err, &failed) || failed.Value != "boom" || !strings.Contains(string(failed.Stack), "TestPanic") {
		t.Errorf("%v", err)
	}
	if err == nil {
		_ = res.Body.Close()
	}
	for value, want := range map[any]error{"late": &inprocess.PanicError{}, http.ErrAbortHandler: io.ErrUnexpectedEOF} {
		res := do(t.Context(), t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			panic(value)
		}), http.MethodGet, nil)
		out, err := io.ReadAll(res.Body)
		if string(out) != "half" || err == nil || (!errors.Is(err, want) && !errors.As(err, &failed)) {
			t.Errorf("%v: %q %v", value, out, err)
		}
		_ = res.Body.Close()
	}
}

// TestBothDirections: a handler answers while the request's body is still coming.
func TestBothDirections(t *testing.T) {
	t.Parallel()
	h := connect.NewBidiStreamHandler("/s/m", func(_ context.Context, s *connect.BidiStream[text, text]) error {
		for {
			m, err := s.Receive()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.Send(m); err != nil {
				return err
			}
		}
	})
	for name, opts := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect.NewClient[text, text](inprocess.Client(h), "http://nowhere/s/m", opts...).CallBidiStream(t.Context())
			for i := range 3 {
				if err := s.Send(wrapperspb.String(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
				if m, err := s.Receive(); err != nil || m.GetValue() != fmt.Sprint(i) {
					t.Fatalf("%v, %v", m, err)
				}
			}
			if err := s.CloseRequest(); err != nil {
				t.Error(err)
			}
			if _, err := s.Receive(); !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %v", err)
			}
			if err := s.CloseResponse(); err != nil {
				t.Error(err)
			}
		})
	}
}

func ExampleClient() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s", r.URL.Path)
	})
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://any/where", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := inprocess.Client(hello).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close() //nolint:errcheck // an example
	out, err := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(out), err)
	// Output: 200 hello from /where <nil>
}
