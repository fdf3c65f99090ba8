package upstream_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a mongos that says hello, echoes "echo", answers the request before with "late", and never answers anything
// else.
type server struct {
	t      *testing.T
	listen net.Listener
	asked  chan struct{} // a command came that has no answer
	g      sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// drop ends all connections.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func start(t *testing.T) *server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, l)
}

// startAt starts a server at a listener.
func startAt(t *testing.T, l net.Listener) *server {
	t.Helper()
	s := &server{t: t, listen: l, asked: make(chan struct{}, 1)}
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
		s.g.Wait()
	})
	return s
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // nothing is left to write
	in := bufio.NewReader(conn)
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
		first, err := m.Body.IndexErr(0)
		if err != nil {
			s.t.Error(err)
			return
		}
		out := message.Message{ReplyTo: m.ID, Query: m.Query, Body: m.Body}
		switch first.Key() {
		case "echo":
		case "late":
			out.ReplyTo--
		case "hello", "isMaster", "ismaster":
			out.Body = body(s.t, bson.D{
				{Key: "ok", Value: 1.0}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "msg", Value: "isdbgrid"},
				{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 25}, {Key: "maxMessageSizeBytes", Value: message.MaxMessage},
			})
		case "endSessions":
			out.Body = body(s.t, bson.D{{Key: "ok", Value: 1.0}})
		default:
			s.asked <- struct{}{}
			continue
		}
		if _, err := conn.Write(out.Append(nil)); err != nil {
			return
		}
	}
}

func body(t *testing.T, d bson.D) []byte {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestLines: messages of clients go over the driver's connections without the driver, which keeps them for the next
// use. A connection whose exchange was cancelled is not used again. No connection is left at the end.
func TestLines(t *testing.T) {
	s := start(t)
	c, err := upstream.Open("mongodb://" + s.listen.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	conn := func() *upstream.Conn {
		t.Helper()
		conn, err := c.Conn(t.Context(), nil, upstream.Want{})
		if err != nil {
			t.Fatal(err)
		}
		if !conn.Direct() {
			t.Error("messages go through the driver")
		}
		return conn
	}
	// Longer than the buffer, and shorter.
	for _, size := range []int{20 << 10, 10} {
		one := conn()
		sent := body(t, bson.D{{Key: "echo", Value: make([]byte, size)}, {Key: "ok", Value: 1.0}})
		got, err := one.Exchange(t.Context(), message.Message{ID: 7, Body: sent}.Append(nil))
		if err != nil || got.ReplyTo != 7 || string(got.Body) != string(sent) {
			t.Errorf("%d bytes: %+v, %v", size, got, err)
		}
		one.Release()
	}
	if n := c.Lines(); n != 1 {
		t.Errorf("%d connections for one user after another, want 1", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.asked
		cancel()
	}()
	one := conn()
	hangs := message.Message{ID: 8, Body: body(t, bson.D{{Key: "hang", Value: 1}})}.Append(nil)
	if _, err := one.Exchange(ctx, hangs); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled exchange: %v", err)
	}
	one.Release()
	if n := c.Lines(); n != 0 {
		t.Errorf("the driver keeps %d connections", n)
	}
	one = conn()
	if _, err := one.Exchange(ctx, hangs); !errors.Is(err, context.Canceled) {
		t.Errorf("an exchange after its time: %v", err)
	}
	one.Release()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := c.Lines(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// TestExchangeRefusesOtherReply: a reply to another request is an error, and its connection is not used again, over each
// kind of connection. The next request of the client gets its own reply.
func TestExchangeRefusesOtherReply(t *testing.T) {
	web := httptest.NewTLSServer(nil)
	certificates := web.TLS.Certificates
	web.Close()
	for _, tc := range []struct {
		name, network, address, options string
		tls, direct                     bool
	}{
		{name: "tcp", network: "tcp", address: "127.0.0.1:0", direct: true},
		{name: "unix", network: "unix", address: filepath.Join(t.TempDir(), "mongos.sock"), direct: true},
		{name: "tls", network: "tcp", address: "127.0.0.1:0", options: "?tls=true&tlsInsecure=true", tls: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), tc.network, tc.address)
			if err != nil {
				t.Fatal(err)
			}
			at := url.PathEscape(l.Addr().String())
			if tc.tls {
				l = tls.NewListener(l, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
			}
			startAt(t, l)
			c, err := upstream.Open("mongodb://" + at + "/" + tc.options)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			exchange := func(id int32, verb string) (message.Message, string, error) {
				t.Helper()
				conn, err := c.Conn(t.Context(), nil, upstream.Want{})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
				if conn.Direct() != tc.direct {
					t.Errorf("messages go over a line: %v, want %v", conn.Direct(), tc.direct)
				}
				m, err := conn.Exchange(t.Context(), message.Message{ID: id, Body: body(t, bson.D{{Key: verb, Value: 1}, {Key: "ok", Value: 1.0}})}.Append(nil))
				return m, conn.ID(), err
			}
			m, one, err := exchange(7, "late")
			if err == nil || !strings.Contains(err.Error(), "answered request 6 instead of request 7") || m.Body != nil {
				t.Errorf("a reply to another request: %v, %v", m, err)
			}
			m, two, err := exchange(8, "echo")
			if err != nil || m.ReplyTo != 8 || one == two {
				t.Errorf("the next request, over %s after %s: %v, %v", two, one, m, err)
			}
			if _, three, err := exchange(9, "echo"); err != nil || three != two {
				t.Errorf("a third request, over %s after %s: %v", three, two, err)
			}
		})
	}
}

// TestConnOfKilledServer: a server is killed while a connection to it waits for the next use, and the driver has not
// noticed it. No client gets that connection.
func TestConnOfKilledServer(t *testing.T) {
	for _, tc := range []struct {
		name    string
		servers int
		again   bool // it is there again at once
	}{
		{name: "restarted", servers: 1, again: true},
		{name: "gone", servers: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var servers []*server
			var at []string
			for range tc.servers {
				s := start(t)
				servers, at = append(servers, s), append(at, s.listen.Addr().String())
			}
			c, err := upstream.Open("mongodb://" + strings.Join(at, ",") + "/?heartbeatFrequencyMS=3600000")
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			used := map[string]int{}
			use := func() {
				t.Helper()
				conn, err := c.Conn(t.Context(), nil, upstream.Want{})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
				used[conn.Address().String()]++
				if _, err := conn.Exchange(t.Context(), message.Message{ID: 7, Body: body(t, bson.D{{Key: "echo", Value: 1}, {Key: "ok", Value: 1.0}})}.Append(nil)); err != nil {
					t.Fatal(err)
				}
			}
			for len(c.Known()) < tc.servers {
				runtime.Gosched() // the driver asks them
			}
			for used[at[0]] == 0 {
				use()
			}
			if !tc.again {
				_ = servers[0].listen.Close()
			}
			servers[0].drop()
			for c.Dead() == 0 {
				runtime.Gosched() // the end comes over the network
			}
			clear(used)
			for range 20 {
				use()
			}
			if n := used[at[0]]; (n > 0) != tc.again {
				t.Errorf("%d connections to the killed server", n)
			}
		})
	}
}
