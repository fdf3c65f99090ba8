package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// controllerAPI is the part of a controller that an application talks to.
type controllerAPI struct {
	dbcontrollerv1connect.UnimplementedDeploymentServiceHandler
	mu       sync.Mutex
	location *dbv1.Location
	news     chan struct{}
	acks     chan int64
}

func (c *controllerAPI) set(loc *dbv1.Location) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.location = loc
	close(c.news)
	c.news = make(chan struct{})
}

func (c *controllerAPI) get() (*dbv1.Location, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.location, c.news
}

func (c *controllerAPI) RegisterClient(context.Context, *connect.Request[dbv1.RegisterClientRequest]) (*connect.Response[dbv1.RegisterClientResponse], error) {
	loc, _ := c.get()
	return connect.NewResponse(&dbv1.RegisterClientResponse{ClientId: "client-packages-1", TtlMs: 10_000, Location: loc}), nil
}

func (c *controllerAPI) GetLocation(ctx context.Context, r *connect.Request[dbv1.GetLocationRequest]) (*connect.Response[dbv1.Location], error) {
	for {
		loc, news := c.get()
		if loc.GetRevision() > r.Msg.GetWaitRevision() {
			return connect.NewResponse(loc), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-news:
		}
	}
}

func (c *controllerAPI) AckHold(_ context.Context, r *connect.Request[dbv1.AckHoldRequest]) (*connect.Response[dbv1.AckHoldResponse], error) {
	c.acks <- r.Msg.GetAttempt()
	return connect.NewResponse(&dbv1.AckHoldResponse{Acked: 1, Total: 1}), nil
}

func at(version string, revision int64) *dbv1.Location {
	return &dbv1.Location{
		State: dbv1.Location_OPEN, Version: version, Revision: revision,
		Kinds: []*dbv1.KindLocation{{Kind: packagesKind, Database: "dbc_" + version, Collection: packagesKind}},
	}
}

func hold(version string, revision, attempt int64) *dbv1.Location {
	loc := at(version, revision)
	loc.State, loc.UpgradeId, loc.Attempt = dbv1.Location_HOLD, "up-1", attempt
	return loc
}

// startApplication runs an application against a controller's API.
func startApplication(t *testing.T) (*application, *controllerAPI) {
	t.Helper()
	api := &controllerAPI{location: at(oldVersion, 1), news: make(chan struct{}), acks: make(chan int64, 10)}
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(api))
	server := httptest.NewServer(mux)
	client, err := mongo.Connect()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	app, err := register(ctx, []dbcontrollerv1connect.DeploymentServiceClient{
		dbcontrollerv1connect.NewDeploymentServiceClient(server.Client(), server.URL),
	}, client)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = app.follow(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		server.Close()
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return app, api
}

func TestApplicationHoldsFinishesAcknowledgesAndFollows(t *testing.T) {
	t.Parallel()
	app, api := startApplication(t)
	ctx := t.Context()
	began, finish, done := make(chan struct{}), make(chan struct{}), make(chan string, 2)
	go func() {
		version, err := app.write(ctx, func(context.Context, *mongo.Collection, string) error {
			close(began)
			<-finish
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		done <- version
	}()
	<-began
	api.set(hold(oldVersion, 2, 5))
	for app.where().GetState() != dbv1.Location_HOLD {
		if err := sleep(ctx, time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-api.acks:
		t.Fatal("it says that it holds while a write is in flight")
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if v := <-done; v != oldVersion {
		t.Errorf("the write in flight went to %s", v)
	}
	if attempt := <-api.acks; attempt != 5 {
		t.Errorf("attempt %d is acknowledged", attempt)
	}
	go func() {
		version, err := app.write(ctx, func(_ context.Context, c *mongo.Collection, _ string) error {
			if c.Database().Name() != "dbc_"+newVersion {
				t.Errorf("the held write went to %s", c.Database().Name())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		done <- version
	}()
	select {
	case v := <-done:
		t.Fatalf("a write went to %s while writes are held", v)
	case <-time.After(50 * time.Millisecond):
	}
	api.set(at(newVersion, 3))
	if v := <-done; v != newVersion {
		t.Errorf("the held write went to %s", v)
	}
}

func TestRefusedWriteIsMadeWhereTheDataIs(t *testing.T) {
	t.Parallel()
	app, api := startApplication(t)
	refusal := mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 121, Message: "Document failed validation"}}}
	tries := 0
	version, err := app.write(t.Context(), func(_ context.Context, _ *mongo.Collection, version string) error {
		tries++
		if version == oldVersion {
			api.set(at(newVersion, 4))
			return refusal
		}
		return nil
	})
	if err != nil || version != newVersion || tries != 2 {
		t.Errorf("%v, on %s after %d tries", err, version, tries)
	}
}

func TestAbsentRecordIsNotLookedForForEver(t *testing.T) {
	t.Parallel()
	app, _ := startApplication(t)
	tries := 0
	_, err := app.write(t.Context(), func(context.Context, *mongo.Collection, string) error {
		tries++
		return errMoved
	})
	if err == nil || tries != 2 {
		t.Errorf("%v after %d tries, want an error after 2", err, tries)
	}
}
