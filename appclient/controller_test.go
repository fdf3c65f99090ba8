package appclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/appclient"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

const kind = "packages"

// deployment is what all controllers of a test know.
type deployment struct {
	mu         sync.Mutex
	location   *pb.Location
	news       chan struct{}
	acks       chan int64
	registered map[string]bool
	refused    int // calls that name another deployment

	answersAnyName bool // as a controller of a time before it looked
}

func newDeployment() *deployment {
	return &deployment{location: at("v1", 1), news: make(chan struct{}), acks: make(chan int64, 10), registered: map[string]bool{}}
}

func (d *deployment) set(loc *pb.Location) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.location = loc
	close(d.news)
	d.news = make(chan struct{})
}

func (d *deployment) get() (*pb.Location, chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.location, d.news
}

func (d *deployment) clients() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.registered)
}

// controllerAPI is the part of one controller that an application talks to.
type controllerAPI struct {
	dbcontrollerv1connect.UnimplementedDeploymentServiceHandler
	*deployment
	server *httptest.Server
	stop   chan struct{} // ends calls that wait

	loseAnswers atomic.Int32 // so many registrations more
	refuses     error        // answer to each registration; nil: it registers
	stands      atomic.Bool  // it answers no call, as a process that was stopped
	gaveUp      atomic.Int32 // calls that ended while it stood still
	asking      atomic.Int32 // calls for the location, to have it at once, that have not ended
	ready       func() bool  // whether it answers such calls by now; nil: at once

	mu     sync.Mutex
	asked  int                    // for the location, to have it at once
	waited *pb.GetLocationRequest // the latest call of a registered process that waits for news
}

// named refuses a call about another deployment.
func (d *deployment) named(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == "" || d.answersAnyName || d.location.GetDeployment() == "" || name == d.location.GetDeployment() {
		return nil
	}
	d.refused++
	return connect.NewError(connect.CodeNotFound, errors.New("there is no such deployment"))
}

func startController(t *testing.T, d *deployment) *controllerAPI {
	t.Helper()
	c := &controllerAPI{deployment: d, stop: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(c))
	c.server = httptest.NewServer(mux)
	t.Cleanup(c.end)
	return c
}

// end is the controller's end. It may come before that of the test.
func (c *controllerAPI) end() {
	c.mu.Lock()
	server := c.server
	c.server = nil
	c.mu.Unlock()
	// Calls that run take the lock, too, and Close waits for them.
	if server != nil {
		close(c.stop)
		server.Close()
	}
}

// still waits for the end of a call if the controller stands still.
func (c *controllerAPI) still(ctx context.Context) error {
	if !c.stands.Load() {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-c.stop:
	}
	c.gaveUp.Add(1)
	return connect.NewError(connect.CodeUnavailable, errors.New("it stood still"))
}

func (c *controllerAPI) RegisterClient(ctx context.Context, r *connect.Request[pb.RegisterClientRequest]) (*connect.Response[pb.RegisterClientResponse], error) {
	if err := errors.Join(c.still(ctx), c.refuses); err != nil {
		return nil, err
	}
	if err := c.named(r.Msg.GetName()); err != nil {
		return nil, err
	}
	id := r.Msg.GetClientId()
	c.deployment.mu.Lock()
	defer c.deployment.mu.Unlock()
	c.registered[id] = true
	if c.loseAnswers.Add(-1) >= 0 {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the answer was lost"))
	}
	return connect.NewResponse(&pb.RegisterClientResponse{ClientId: id, TtlMs: r.Msg.GetTtlMs(), Location: c.location}), nil
}

func (c *controllerAPI) DeregisterClient(ctx context.Context, r *connect.Request[pb.DeregisterClientRequest]) (*connect.Response[pb.DeregisterClientResponse], error) {
	if err := c.still(ctx); err != nil {
		return nil, err
	}
	c.deployment.mu.Lock()
	defer c.deployment.mu.Unlock()
	delete(c.registered, r.Msg.GetClientId())
	return connect.NewResponse(&pb.DeregisterClientResponse{}), nil
}

func (c *controllerAPI) GetLocation(ctx context.Context, r *connect.Request[pb.GetLocationRequest]) (*connect.Response[pb.Location], error) {
	if err := c.named(r.Msg.GetName()); err != nil {
		return nil, err
	}
	if r.Msg.GetWaitRevision() == 0 {
		c.mu.Lock()
		c.asked++
		c.mu.Unlock()
		c.asking.Add(1)
		defer c.asking.Add(-1)
		for c.ready != nil && !c.ready() && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
	}
	if r.Msg.GetClientId() != "" {
		c.mu.Lock()
		c.waited = r.Msg
		c.mu.Unlock()
	}
	timeout := time.After(time.Duration(r.Msg.GetTimeoutMs()) * time.Millisecond)
	for {
		loc, news := c.get()
		if err := c.still(ctx); err != nil {
			return nil, err
		}
		if loc.GetRevision() > r.Msg.GetWaitRevision() {
			return connect.NewResponse(loc), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.stop:
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("stopping"))
		case <-timeout:
			return connect.NewResponse(loc), c.still(ctx)
		case <-news:
		}
	}
}

func (c *controllerAPI) AckHold(ctx context.Context, r *connect.Request[pb.AckHoldRequest]) (*connect.Response[pb.AckHoldResponse], error) {
	if err := c.still(ctx); err != nil {
		return nil, err
	}
	c.acks <- r.Msg.GetAttempt()
	return connect.NewResponse(&pb.AckHoldResponse{Acked: 1, Total: 1}), nil
}

func at(version string, revision int64) *pb.Location {
	return &pb.Location{
		State: pb.Location_OPEN, Version: version, Revision: revision, Database: "dbc_" + version, Cluster: "one",
		Kinds: []*pb.KindLocation{{Kind: kind, Database: "dbc_" + version, Collection: kind}},
	}
}

func hold(version string, revision, attempt int64) *pb.Location {
	loc := at(version, revision)
	loc.State, loc.UpgradeId, loc.Attempt = pb.Location_HOLD, "up-1", attempt
	return loc
}

// unconnected is a client of a MongoDB that these tests never ask.
func unconnected(t *testing.T) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().SetServerSelectionTimeout(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// open opens an application at some controllers.
func open(t *testing.T, controllers ...*controllerAPI) *appclient.App {
	t.Helper()
	return openWith(t, unconnected(t), controllers...)
}

func openWith(t *testing.T, client *mongo.Client, controllers ...*controllerAPI) *appclient.App {
	t.Helper()
	var addresses []string
	for _, c := range controllers {
		addresses = append(addresses, c.server.URL)
	}
	app, err := appclient.Open(t.Context(), appclient.Config{Controllers: addresses, Application: "packages", Mongo: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = app.Close(ctx) // a test that cares closes it itself
		http.DefaultClient.CloseIdleConnections()
	})
	return app
}

// eventually tries until it works.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s does not come", what)
		case <-tick.C:
		}
	}
}
