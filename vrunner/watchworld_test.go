package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// text is the message of the watched service: "PUT name value", "DELETE name", "LEVEL".
type text = wrapperspb.StringValue

func event(m *text) (vrunner.Event, error) {
	parts := strings.SplitN(m.GetValue(), " ", 3)
	switch parts[0] {
	case "PUT":
		return vrunner.Event{Type: vrunner.EventPut, Name: parts[1]}, nil
	case "DELETE":
		return vrunner.Event{Type: vrunner.EventDelete, Name: parts[1]}, nil
	case "LEVEL":
		return vrunner.Event{Type: vrunner.EventLevel}, nil
	case "BAD":
		return vrunner.Event{}, errors.New("bad event")
	default:
		return vrunner.Event{Type: vrunner.EventOther}, nil
	}
}

func deleted(name string) *text { return wrapperspb.String("DELETE " + name) }

func valueOf(doc bson.Raw) string {
	v, _ := doc.Lookup("value").StringValueOK()
	return v
}

// watchHandler is a service's: it keeps the protocol over a view. The request is a prefix
// of names, or what to fail with.
func watchHandler(version string, v *vrunner.View) func(context.Context, *connect.Request[text], *connect.ServerStream[text]) error {
	return func(ctx context.Context, req *connect.Request[text], out *connect.ServerStream[text]) error {
		if req.Msg.GetValue() == "refuse" {
			return connect.NewError(connect.CodePermissionDenied, errors.New("refused"))
		}
		out.ResponseHeader().Set("Version", version)
		out.ResponseHeader().Set("Caller", req.Header().Get("Caller"))
		if req.Msg.GetValue() == "bad" {
			return out.Send(wrapperspb.String("BAD"))
		}
		kind := kindOf[version]
		changes, err := v.Changes(ctx, kind)
		if err != nil {
			return err
		}
		defer changes.Close()
		recs, err := v.List(ctx, kind, req.Msg.GetValue(), "", 0)
		if err != nil {
			return err
		}
		for _, r := range recs {
			if err := out.Send(wrapperspb.String(fmt.Sprintf("PUT %s %s", r.Key, valueOf(r.Doc)))); err != nil {
				return err
			}
		}
		if err := out.Send(wrapperspb.String("LEVEL")); err != nil {
			return err
		}
		for {
			names, err := changes.Next(ctx)
			if err != nil {
				return err
			}
			for _, d := range names {
				if !strings.HasPrefix(d.Name, req.Msg.GetValue()) {
					continue
				}
				m := "DELETE " + d.Name
				switch rec, err := v.Get(ctx, d.Kind, d.Name); {
				case errors.Is(err, record.ErrNotFound):
				case err != nil:
					return err
				default:
					m = fmt.Sprintf("PUT %s %s", d.Name, valueOf(rec.Doc))
				}
				if err := out.Send(wrapperspb.String(m)); err != nil {
					return err
				}
			}
		}
	}
}

func watchStack(version string, views map[string]*vrunner.View) vrunner.Stack {
	return vrunner.Stack{
		Handler: connect.NewServerStreamHandler(watchPath, watchHandler(version, views[version])),
		Write:   func(*http.Request) bool { return false },
	}
}

// watchServer runs a server with the watched procedure, and returns a client for each
// protocol.
func watchServer(t *testing.T, w *world, databases map[string]vrunner.Database, p vrunner.WatchProcedure[text]) (*vrunner.Runner, map[string]*connect.Client[text, text]) {
	t.Helper()
	r := vrunner.New(consumer{w.store, &announced{}}, databases, watchStack, vrunner.Config{ID: "server"}, nil)
	p.Procedure = watchPath
	mux := http.NewServeMux()
	mux.Handle("/", r)
	mux.Handle(vrunner.NewWatchHandler[text](r, p))
	clients := map[string]*connect.Client[text, text]{}
	for name, e := range endpoints(t, r, mux) {
		clients[name] = connect.NewClient[text, text](e.client, e.url+watchPath, e.opts...)
	}
	return r, clients
}

// endpoint is a way to call a server.
type endpoint struct {
	client *http.Client
	url    string
	opts   []connect.ClientOption
}

// endpoints runs r and serves h until the test ends. It returns an endpoint for each protocol.
func endpoints(t *testing.T, r *vrunner.Runner, h http.Handler) map[string]endpoint {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.Run(ctx) }() // ends with its context
	t.Cleanup(func() { stop(); <-stopped })
	var both, only2 http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	only2.SetUnencryptedHTTP2(true)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = &both
	srv.Config.BaseContext = func(net.Listener) context.Context { return context.Background() }
	srv.Start()
	h1, h2 := &http.Transport{}, &http.Transport{Protocols: &only2}
	t.Cleanup(func() {
		h1.CloseIdleConnections()
		h2.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	eventually(t, "ready", func() bool { return r.Ready() == nil })
	return map[string]endpoint{
		"connect":      {&http.Client{Transport: h1}, srv.URL, nil},
		"connect json": {&http.Client{Transport: h1}, srv.URL, []connect.ClientOption{connect.WithProtoJSON()}},
		"connect h2c":  {&http.Client{Transport: h2}, srv.URL, nil},
		"grpc":         {&http.Client{Transport: h2}, srv.URL, []connect.ClientOption{connect.WithGRPC()}},
		"grpc-web":     {&http.Client{Transport: h1}, srv.URL, []connect.ClientOption{connect.WithGRPCWeb()}},
	}
}

// follower is a client's open watch.
type follower struct {
	t      *testing.T
	stream *connect.ServerStreamForClient[text]
	cancel context.CancelFunc
}

func follow(t *testing.T, c *connect.Client[text, text], what string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req := connect.NewRequest(wrapperspb.String(what))
	req.Header().Set("Caller", "test")
	s, err := c.CallServerStream(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t, s, cancel}
	t.Cleanup(f.close)
	return f
}

func (f *follower) close() {
	f.cancel()
	_ = f.stream.Close()
}

// expect receives messages.
func (f *follower) expect(want ...string) {
	f.t.Helper()
	for _, m := range want {
		if !f.stream.Receive() {
			f.t.Fatalf("instead of %s the stream ended: %v", m, f.stream.Err())
		}
		if got := f.stream.Msg().GetValue(); got != m {
			f.t.Errorf("got %s, want %s", got, m)
		}
	}
}

func (f *follower) ends(code connect.Code, text string) {
	f.t.Helper()
	if f.stream.Receive() {
		f.t.Fatalf("got %s, want the end", f.stream.Msg().GetValue())
	}
	if err := f.stream.Err(); connect.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		f.t.Errorf("ended with %v, want %s: %s", err, code, text)
	}
}

// becomes receives until the client has what is there.
func (f *follower) becomes(want map[string]string) {
	f.t.Helper()
	has, levels := map[string]string{}, 0
	for levels == 0 || !maps.Equal(has, want) {
		if !f.stream.Receive() {
			f.t.Fatalf("the stream ended with %v; has\n%v, want\n%v", f.stream.Err(), has, want)
		}
		parts := strings.Fields(f.stream.Msg().GetValue())
		switch parts[0] {
		case "PUT":
			if has[parts[1]] == parts[2] {
				f.t.Errorf("%v came twice", parts)
			}
			has[parts[1]] = parts[2]
		case "DELETE":
			if _, there := has[parts[1]]; !there {
				f.t.Errorf("%v of what the client never had", parts)
			}
			delete(has, parts[1])
		case "LEVEL":
			levels++
		}
	}
	if levels != 1 {
		f.t.Errorf("LEVEL was sent %d times", levels)
	}
}
