package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/access/accesstest"
)

// controller counts what it is asked, and answers as a test wants.
type controller struct {
	dbcontrollerv1connect.UnimplementedDeploymentServiceHandler
	gets, begins atomic.Int64
	get, begin   func(context.Context) error
}

func (c *controller) GetDeployment(ctx context.Context, _ *connect.Request[dbv1.GetDeploymentRequest]) (*connect.Response[dbv1.Deployment], error) {
	c.gets.Add(1)
	if c.get != nil {
		if err := c.get(ctx); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&dbv1.Deployment{}), nil
}

func (c *controller) BeginUpgrade(ctx context.Context, _ *connect.Request[dbv1.BeginUpgradeRequest]) (*connect.Response[dbv1.Deployment], error) {
	c.begins.Add(1)
	if c.begin != nil {
		if err := c.begin(ctx); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&dbv1.Deployment{}), nil
}

func serve(t *testing.T, c *controller) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(c))
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.Listener.Addr().String()
}

func open(t *testing.T, servers ...string) dbcontrollerv1connect.DeploymentServiceClient {
	t.Helper()
	api, err := Open(Config{Server: strings.Join(servers, ", ")})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func get(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
	_, err := api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
	return err
}

func begin(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
	_, err := api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: "v2"}))
	return err
}

// TestTheNextControllerIsAsked: of several, one that is away is passed by, and the one that
// answered is asked first from then on.
func TestTheNextControllerIsAsked(t *testing.T) {
	t.Parallel()
	second, third := &controller{}, &controller{}
	api := open(t, accesstest.ClosedPort(t), serve(t, second), serve(t, third))
	for range 3 {
		if err := get(t.Context(), api); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	if second.gets.Load() != 3 || second.begins.Load() != 1 || third.gets.Load() != 0 {
		t.Errorf("asked %d, %d and %d times", second.gets.Load(), second.begins.Load(), third.gets.Load())
	}
}

// TestAControllerThatHangsIsPassedBy: with a deadline each of them has a part of it.
func TestAControllerThatHangsIsPassedBy(t *testing.T) {
	t.Parallel()
	hangs, good := &controller{get: hang}, &controller{}
	api := open(t, serve(t, hangs), serve(t, good))
	// A busy machine may need more than its part of a short deadline for one call.
	for limit := 2 * time.Second; ; limit *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := get(ctx, api)
		cancel()
		if err == nil {
			break
		}
		if limit > time.Minute {
			t.Fatalf("%v, asked %d times", err, good.gets.Load())
		}
	}
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestAStoppingControllerIsPassedBy: what says that it cannot now is no answer to a reader.
func TestAStoppingControllerIsPassedBy(t *testing.T) {
	t.Parallel()
	stopping := &controller{get: func(context.Context) error {
		return connect.NewError(connect.CodeUnavailable, errors.New("stopping"))
	}}
	good := &controller{}
	if err := get(t.Context(), open(t, serve(t, stopping), serve(t, good))); err != nil || good.gets.Load() != 1 {
		t.Errorf("%v, asked %d times", err, good.gets.Load())
	}
	err := get(t.Context(), open(t, serve(t, stopping)))
	if connect.CodeOf(err) != connect.CodeUnavailable || !connect.IsWireError(err) || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("the only one: %v", err)
	}
}

// TestAChangeIsSentOnce: a call that changes something goes to no second controller once it
// may have reached one, and what has reached none says so.
func TestAChangeIsSentOnce(t *testing.T) {
	t.Parallel()
	dies := &controller{begin: func(context.Context) error { panic(http.ErrAbortHandler) }}
	other := &controller{}
	api := open(t, serve(t, dies), serve(t, other))
	var unsent *NotSentError
	if err := begin(t.Context(), api); err == nil || errors.As(err, &unsent) || other.begins.Load() != 0 {
		t.Errorf("its answer was lost: %v, and %d calls to another", err, other.begins.Load())
	}
	// The caller knows that this one changes nothing.
	if err := begin(Repeatable(t.Context()), open(t, serve(t, dies), serve(t, other))); err != nil || other.begins.Load() != 1 {
		t.Errorf("%v, asked %d times", err, other.begins.Load())
	}
	// After a lost answer the other one is asked first.
	if err := begin(t.Context(), api); err != nil || other.begins.Load() != 2 {
		t.Errorf("%v, asked %d times", err, other.begins.Load())
	}
	a, b := accesstest.ClosedPort(t), accesstest.ClosedPort(t)
	err := begin(t.Context(), open(t, a, b))
	if !errors.As(err, &unsent) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
		t.Errorf("nobody is there: %v", err)
	}
}

func TestEachAddressIsChecked(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"localhost:1,":                      `"http://" is no address of a controller`,
		"127.0.0.1:1,ctl.example.org:1":     "a token would be readable on the way: give https://ctl.example.org:1",
		"https://a:1,https://x:s3cret@b:1/": `"***@b:1/" is no address of a controller`,
	} {
		_, err := Config{Server: server, TokenFile: "token"}.URLs()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", server, err, want)
		}
	}
}
