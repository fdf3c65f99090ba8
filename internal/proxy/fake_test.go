package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/proxy/login"
	"dbcontroller.dev/internal/proxy/message"
)

// server is a MongoDB server whose answers a test chooses.
type server struct {
	t      *testing.T
	listen net.Listener
	router bool         // a mongos; otherwise the primary of a replica set
	wire   atomic.Int32 // maxWireVersion
	resets atomic.Bool  // a connection that breaks is reset, as by a machine whose server is gone
	users  *login.Users // that may log in; nil: no login is needed
	g      sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	answers map[string]func(c command) bsoncore.Document       // by command; nil reply: the connection breaks
	got     []command                                          // without those about the server itself
	writes  func(c command, conn net.Conn, reply []byte) error // nil: at once
}

func startServer(t *testing.T, router bool) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, listen: l, router: router, answers: map[string]func(command) bsoncore.Document{}}
	s.wire.Store(25)
	s.g.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.g.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.g.Wait()
	})
	return s
}

func (s *server) uri() string {
	login := ""
	if s.users != nil {
		login = "owner:owner-db@"
	}
	if s.router {
		return "mongodb://" + login + s.listen.Addr().String() + "/"
	}
	return "mongodb://" + login + s.listen.Addr().String() + "/?replicaSet=rs"
}

// on sets the answer to a command.
func (s *server) on(verb string, answer func(c command) bsoncore.Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[verb] = answer
}

// calls returns the commands of a name that came.
func (s *server) calls(verb string) (out []command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.got {
		if c.verb == verb {
			out = append(out, c)
		}
	}
	return out
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // nothing is left to write
	in := bufio.NewReader(conn)
	var who visitor
	for {
		h, rest, err := message.ReadHeader(in, message.MaxMessage)
		if err != nil {
			return
		}
		b := make([]byte, rest)
		if _, err := io.ReadFull(in, b); err != nil {
			return
		}
		m, err := message.Decode(h, b)
		if err != nil {
			s.t.Error(err)
			return
		}
		c, err := parse(m)
		if err != nil {
			s.t.Error(err)
			return
		}
		reply := s.logIn(&who, &c)
		if reply == nil {
			reply = s.answer(c)
		}
		if reply == nil {
			if tcp, ok := conn.(*net.TCPConn); ok && s.resets.Load() {
				_ = tcp.SetLinger(0)
			}
			return
		}
		if err := s.write(c, conn, message.Message{ID: 1, ReplyTo: m.ID, Query: m.Query, Body: reply}.Append(nil)); err != nil {
			return
		}
	}
}

func (s *server) write(c command, conn net.Conn, reply []byte) error {
	s.mu.Lock()
	writes := s.writes
	s.mu.Unlock()
	if writes != nil && c.verb == "getMore" {
		return writes(c, conn, reply)
	}
	_, err := conn.Write(reply)
	return err
}

// writing sets how the replies to getMore are written. After an error the connection breaks.
func (s *server) writing(writes func(c command, conn net.Conn, reply []byte) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = writes
}

func (s *server) answer(c command) bsoncore.Document {
	switch c.verb {
	case "hello", "isMaster", "ismaster":
		hello := bson.D{
			{Key: "ok", Value: 1.0}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "helloOk", Value: true},
			{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: s.wire.Load()}, {Key: "logicalSessionTimeoutMinutes", Value: 30},
			{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: message.MaxMessage}, {Key: "maxWriteBatchSize", Value: 100_000},
		}
		if s.users != nil {
			hello = append(hello, bson.E{Key: "saslSupportedMechs", Value: bson.A{login.SHA256}})
		}
		if s.router {
			hello = append(hello, bson.E{Key: "msg", Value: "isdbgrid"})
		} else {
			me := s.listen.Addr().String()
			hello = append(hello, bson.E{Key: "setName", Value: "rs"}, bson.E{Key: "setVersion", Value: 1}, bson.E{Key: "hosts", Value: bson.A{me}}, bson.E{Key: "me", Value: me})
		}
		raw, err := bson.Marshal(hello)
		if err != nil {
			s.t.Error(err)
		}
		return raw
	case "endSessions":
		return success()
	}
	s.mu.Lock()
	s.got = append(s.got, c)
	answer := s.answers[c.verb]
	s.mu.Unlock()
	switch {
	case answer != nil:
	case c.verb == "listCollections":
		return doc(s.t, `{"cursor":{"id":{"$numberLong":"0"},"ns":"shop.$cmd.listCollections","firstBatch":[]},"ok":1.0}`)
	default:
		return success()
	}
	return answer(c)
}

// controllers are the controllers of a deployment, as one.
type controllers struct {
	dbcontrollerv1connect.UnimplementedDeploymentServiceHandler
	server *httptest.Server
	stop   chan struct{}
	acks   chan int64  // attempts
	away   atomic.Bool // they tell no place

	mu       sync.Mutex
	location *pb.Location
	asked    *pb.Location // the answer to those who do not wait for something newer; nil: location
	news     chan struct{}
	polls    map[int64]int // calls that wait for something newer than a revision
}

func startControllers(t *testing.T, first *pb.Location) *controllers {
	t.Helper()
	c := &controllers{location: first, news: make(chan struct{}), stop: make(chan struct{}), acks: make(chan int64, 100), polls: map[int64]int{}}
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(c))
	c.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(c.stop)
		http.DefaultClient.CloseIdleConnections()
		c.server.Close()
	})
	return c
}

func (c *controllers) set(loc *pb.Location) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.location = loc
	close(c.news)
	c.news = make(chan struct{})
}

// tell sets the answer to those who ask. Those who wait for news get none.
func (c *controllers) tell(loc *pb.Location) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = loc
}

func (c *controllers) polled(revision int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.polls[revision]
}

func (c *controllers) RegisterClient(_ context.Context, r *connect.Request[pb.RegisterClientRequest]) (*connect.Response[pb.RegisterClientResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return connect.NewResponse(&pb.RegisterClientResponse{ClientId: r.Msg.GetClientId(), TtlMs: r.Msg.GetTtlMs(), Location: c.location}), nil
}

func (c *controllers) DeregisterClient(context.Context, *connect.Request[pb.DeregisterClientRequest]) (*connect.Response[pb.DeregisterClientResponse], error) {
	return connect.NewResponse(&pb.DeregisterClientResponse{}), nil
}

func (c *controllers) AckHold(_ context.Context, r *connect.Request[pb.AckHoldRequest]) (*connect.Response[pb.AckHoldResponse], error) {
	c.acks <- r.Msg.GetAttempt()
	return connect.NewResponse(&pb.AckHoldResponse{}), nil
}

func (c *controllers) GetLocation(ctx context.Context, r *connect.Request[pb.GetLocationRequest]) (*connect.Response[pb.Location], error) {
	if c.away.Load() {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
	}
	timeout := time.NewTimer(time.Duration(r.Msg.GetTimeoutMs()) * time.Millisecond)
	defer timeout.Stop()
	c.mu.Lock()
	c.polls[r.Msg.GetWaitRevision()]++
	asked := c.asked
	c.mu.Unlock()
	if asked != nil && r.Msg.GetWaitRevision() == 0 {
		return connect.NewResponse(asked), nil
	}
	for {
		c.mu.Lock()
		loc, news := c.location, c.news
		c.mu.Unlock()
		if loc.GetRevision() > r.Msg.GetWaitRevision() {
			return connect.NewResponse(loc), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.stop:
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("stopping"))
		case <-timeout.C:
			return connect.NewResponse(loc), nil
		case <-news:
		}
	}
}

// world is an application's collections orders and users, which move between two clusters as
// shop.orders and shop.users, behind proxies. Another collection does not move.
type world struct {
	t           *testing.T
	class       string // of the fences
	at          map[string]*server
	controllers *controllers
	proxies     []*Proxy
	addresses   []string
	revision    atomic.Int64 // of the newest location
	others      []Deployment // further ones
	users       []User
	log         *slog.Logger // of the proxies; nil: none
	tls         *tls.Config  // of their clients; nil: they use none
}

// options of a world; the zero value is one proxy, fences of class view, and the first epoch.
type worldOptions struct {
	proxies int
	class   string
	epoch   int64
	routers []string // versions whose clusters are sharded
	grace   time.Duration
	memory  int64
	log     *slog.Logger // of the proxies
}

func newWorld(t *testing.T, o worldOptions) *world {
	t.Helper()
	w := makeWorld(t, o)
	w.start(o)
	return w
}

// start starts the proxies.
func (w *world) start(o worldOptions) {
	w.t.Helper()
	for range max(o.proxies, 1) {
		w.serve(w.config(o))
	}
}

// serve starts a proxy.
func (w *world) serve(cfg Config) {
	t := w.t
	t.Helper()
	p, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if w.tls != nil {
		l = tls.NewListener(l, w.tls)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := p.Close(ctx); !ended(err) {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	w.proxies, w.addresses = append(w.proxies, p), append(w.addresses, l.Addr().String())
}

// ended reports whether a proxy has closed as it should. On a busy machine its deregistration can take longer than
// a call to a controller may. The controllers notice its end all the same.
func ended(err error) bool { return err == nil || connect.CodeOf(err) == connect.CodeDeadlineExceeded }

func makeWorld(t *testing.T, o worldOptions) *world {
	t.Helper()
	w := &world{t: t, class: o.class, at: map[string]*server{}, log: o.log}
	switch w.class {
	case "":
		w.class = fenceView
	case "none":
		w.class = "" // controllers that do not report it
	}
	for _, v := range []string{"v1", "v2"} {
		w.at[v] = startServer(t, slices.Contains(o.routers, v))
	}
	w.controllers = startControllers(t, w.place("v1", max(o.epoch, 1), pb.Location_OPEN))
	return w
}

func (w *world) config(o worldOptions) Config {
	return Config{
		Upstream: w.at["v1"].uri(), Grace: o.grace, Memory: o.memory, Users: w.users, Log: w.log,
		Deployments: append([]Deployment{{
			Controllers: []string{w.controllers.server.URL}, Application: "proxy", Database: "shop",
			Collections: map[string]string{"orders": "orders", "users": "users"}, URIs: w.uris(),
		}}, w.others...),
	}
}

func (w *world) uris() map[string]string {
	return map[string]string{"v1": w.at["v1"].uri(), "v2": w.at["v2"].uri()}
}

// place returns a location that is newer than all before it.
func (w *world) place(version string, epoch int64, state pb.Location_State) *pb.Location {
	revision := w.revision.Add(1)
	loc := &pb.Location{State: state, Version: version, Database: "shop", Revision: revision, Epoch: epoch, Cluster: version}
	if state == pb.Location_HOLD {
		loc.UpgradeId, loc.Attempt = "up", revision
	}
	for _, kind := range []string{"orders", "users"} {
		loc.Kinds = append(loc.Kinds, &pb.KindLocation{Kind: kind, Database: "shop", Collection: kind, Fixed: true, Fence: w.class})
	}
	return loc
}

// hold makes controllers hold writes, and open opens a place. Each may be called by one goroutine at a time.
func (w *world) hold(version string, epoch int64) {
	w.controllers.set(w.place(version, epoch, pb.Location_HOLD))
}

func (w *world) open(version string, epoch int64) {
	w.controllers.set(w.place(version, epoch, pb.Location_OPEN))
}

// await waits until a proxy knows the newest location.
func (w *world) await(p *Proxy) {
	w.t.Helper()
	w.until("a proxy knows the place", func() bool { return p.deployed[0].app.Revision() == w.revision.Load() })
}

// until waits for a condition.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			w.t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

// session makes the elements of a command of a session.
const session = `"lsid":{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}},"$db":"shop"`

// call sends a command to a proxy and returns the reply; nil after an error.
func (w *world) call(proxy int, command string) bsoncore.Document {
	w.t.Helper()
	conn := w.dial(proxy)
	defer conn.Close() //nolint:errcheck // nothing is left to read
	return call(w.t, conn, command)
}

// dial connects to a proxy.
func (w *world) dial(proxy int) net.Conn {
	w.t.Helper()
	conn := dial(w.t, w.addresses[proxy])
	if w.tls == nil {
		return conn
	}
	return tls.Client(conn, w.tls)
}

func call(t *testing.T, conn net.Conn, command string) bsoncore.Document {
	t.Helper()
	return send(t, conn, message.Message{ID: 1, Body: doc(t, command)})
}

// send sends a message and returns the reply; nil after an error.
func send(t *testing.T, conn net.Conn, m message.Message) bsoncore.Document {
	t.Helper()
	if _, err := conn.Write(m.Append(nil)); err != nil {
		t.Error(err)
		return nil
	}
	h, rest, err := message.ReadHeader(conn, message.MaxMessage)
	if err != nil {
		t.Error(err)
		return nil
	}
	b := make([]byte, rest)
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Error(err)
		return nil
	}
	m, err = message.Decode(h, b)
	if err != nil {
		t.Error(err)
		return nil
	}
	return m.Body
}
