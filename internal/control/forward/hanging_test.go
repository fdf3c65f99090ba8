package forward_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/refusal"
)

// hanging answers calls of some methods only when it is released.
type hanging struct {
	methods []string
	begins  bool             // a stream begins with a message
	arrived chan http.Header // of each call
	free    chan struct{}    // closed: the calls go on
	left    chan struct{}    // each call whose caller has gone
}

func hang(methods ...string) *hanging {
	return &hanging{methods, false, make(chan http.Header, 100), make(chan struct{}), make(chan struct{}, 100)}
}

func (h *hanging) answer(w http.ResponseWriter, r *http.Request) bool {
	if !slices.Contains(h.methods, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]) {
		return false
	}
	body, _ := io.ReadAll(r.Body) // afterwards the server notices that its caller is gone
	if h.begins {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(make([]byte, 5)) // an empty message
		_ = http.NewResponseController(w).Flush()
	}
	h.arrived <- r.Header
	select {
	case <-h.free:
		r.Body = io.NopCloser(bytes.NewReader(body))
		return false
	case <-r.Context().Done():
		h.left <- struct{}{}
		return true
	}
}

// receive waits for something.
func receive[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("%s: it did not happen", what)
	}
	return got
}

// result is how a call ended.
type result struct{ code, text string }

func (p *process) begin(t *testing.T, method string) <-chan result {
	t.Helper()
	ended := make(chan result, 1)
	go func() {
		var r result
		if method == "StreamPlan" {
			r.code, r.text = p.streamed(t, theirs)
		} else {
			req := named{"name": theirs}
			if method == "SetPace" {
				req["paused"] = true
			}
			r.code, r.text = p.call(t, "", method, req, nil)
		}
		ended <- r
	}()
	return ended
}

// streamed makes a call with several answers, and returns how it ended.
func (p *process) streamed(t *testing.T, name string) (code, text string) {
	t.Helper()
	stream, err := p.client(t).StreamPlan(t.Context(), connect.NewRequest(&pb.PlanRequest{Name: name}))
	if err == nil {
		for stream.Receive() {
		}
		err = stream.Err()
		_ = stream.Close()
	}
	if err == nil {
		return "", ""
	}
	code = connect.CodeOf(err).String()
	if reason, _ := refusal.Of(err); reason != "" {
		code = string(reason)
	}
	return code, err.Error()
}

// owned returns a process that forwards to an owner.
func owned(t *testing.T, h *hanging, wait time.Duration) (a, b *process) {
	t.Helper()
	store := etcd(t, ours, theirs)
	a = start(t, store, setup{id: "a", runs: []string{ours}, patience: wait})
	b = start(t, store, setup{id: "b", runs: []string{theirs}, broken: h.answer})
	eventually(t, "a forwards", func() error {
		a.call(t, "", "ListUpdates", named{"name": theirs}, nil)
		return arrivedCall("ListUpdates", b)
	})
	return a, b
}

// alone waits until a process does not forward any more.
func (p *process) alone(t *testing.T) {
	t.Helper()
	eventually(t, "it knows no owner", func() error {
		if code, text := p.call(t, "", "ListUpdates", named{"name": theirs}, nil); code != "NOT_IN_THIS_STATE" {
			return fmt.Errorf("%s %s", code, text)
		}
		return nil
	})
}

// TestDeadlinesPassThrough: the owner knows how long the caller waits, and when it has gone.
func TestDeadlinesPassThrough(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Plan", "StreamPlan"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			h := hang(method)
			h.begins = method == "StreamPlan"
			a, _ := owned(t, h, 0)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				if method == "Plan" {
					_, err := a.client(t).Plan(ctx, connect.NewRequest(&pb.PlanRequest{Name: theirs}))
					ended <- err
					return
				}
				stream, err := a.client(t).StreamPlan(ctx, connect.NewRequest(&pb.PlanRequest{Name: theirs}))
				if err == nil {
					stream.Receive()
					ended <- stream.Err()
					for stream.Receive() {
					}
					_ = stream.Close()
					return
				}
				ended <- err
			}()
			header := receive(t, h.arrived, "the call arrives")
			if ms, err := strconv.Atoi(header.Get("Connect-Timeout-Ms")); err != nil || ms <= 0 || ms > int(patience.Milliseconds()) {
				t.Errorf("the owner's limit is %d ms: %v", ms, err)
			}
			if h.begins {
				if err := receive(t, ended, "the first message comes"); err != nil {
					t.Error(err)
				}
			}
			cancel()
			receive(t, h.left, "the owner notices")
		})
	}
}

// TestHangingOwners: an owner that hangs loses its announcement, and calls to it end. They are not ended when
// an owner takes it away before it finishes its calls.
func TestHangingOwners(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Plan", "StreamPlan"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			h := hang(method)
			a, b := owned(t, h, 0)
			ended := a.begin(t, method)
			receive(t, h.arrived, "the call arrives")
			b.leave()
			if r := receive(t, ended, "the call ends"); r.code != "COORDINATION_UNAVAILABLE" || !strings.Contains(r.text, b.url+" does not answer: it is not announced any more, so it has stopped or hangs") {
				t.Errorf("%+v", r)
			}
			receive(t, h.left, "the owner notices")
		})
	}
	t.Run("SetPace", func(t *testing.T) {
		t.Parallel()
		h := hang("SetPace")
		a, b := owned(t, h, 0)
		ended := a.begin(t, "SetPace")
		receive(t, h.arrived, "the call arrives")
		b.leave()
		a.alone(t)
		close(h.free)
		if r := receive(t, ended, "the call ends"); r.code != "" {
			t.Errorf("%+v", r)
		}
	})
}

// TestCallsWithoutADeadline: they end at last.
func TestCallsWithoutADeadline(t *testing.T) {
	t.Parallel()
	h := hang("Plan", "SetPace", "GetDeployment")
	a, b := owned(t, h, 100*time.Millisecond)
	for method, want := range map[string]result{
		"Plan":          {"COORDINATION_UNAVAILABLE", b.url + " does not answer: no answer within 100ms"},
		"SetPace":       {"OUTCOME_UNKNOWN", "may or may not have made the change: check the deployment, then repeat the call: no answer within 100ms"},
		"GetDeployment": {},
	} {
		if r := receive(t, a.begin(t, method), "the call ends"); r.code != want.code || !strings.Contains(r.text, want.text) {
			t.Errorf("%s: %+v", method, r)
		}
	}
}

// TestStreamsBreak: an owner that dies in the middle of a stream ends it with an error.
func TestStreamsBreak(t *testing.T) {
	t.Parallel()
	h := hang("StreamPlan")
	h.begins = true
	a, b := owned(t, h, 0)
	ended := a.begin(t, "StreamPlan")
	receive(t, h.arrived, "the call arrives")
	b.stop()
	if r := receive(t, ended, "the stream ends"); r.code != "COORDINATION_UNAVAILABLE" || !strings.Contains(r.text, b.url+" does not answer") {
		t.Errorf("%+v", r)
	}
}

// TestWatchesEnd: the owner's watch ends with that of its caller, and both end when this process stops.
func TestWatchesEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(a *process, leave func()){
		"the caller leaves": func(_ *process, leave func()) { leave() },
		"the process stops": func(a *process, _ func()) { a.halt() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hang("WatchDeployment")
			h.begins = true
			a, _ := owned(t, h, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := a.client(t).WatchDeployment(ctx, connect.NewRequest(&pb.WatchDeploymentRequest{Name: theirs}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stream.Close() }()
			if !stream.Receive() {
				t.Fatal(stream.Err())
			}
			end(a, cancel)
			receive(t, h.left, "the owner notices")
			if stream.Receive() {
				t.Error("the watch goes on")
			}
			if reason, _ := refusal.Of(stream.Err()); ctx.Err() == nil && reason != refusal.Stopping {
				t.Errorf("it ended with %v", stream.Err())
			}
		})
	}
}
