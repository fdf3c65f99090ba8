package upstream_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	"golang.org/x/net/dns/dnsmessage"

	"dbcontroller.dev/internal/proxy/upstream"
)

// dialed is a connection as the driver has it.
type dialed struct {
	mnet.ReadWriteCloser
	mnet.Describer
	nc         net.Conn
	id, server string
}

func (d *dialed) ID() string                    { return d.id }
func (d *dialed) Address() address.Address      { return address.Address(d.server) }
func (d *dialed) LocalAddress() address.Address { return address.Address(d.nc.LocalAddr().String()) }

// TestLinesOfOneName: a host name has two addresses, and the connections to them have the same local address, as the
// kernel may choose it. Each connection of the driver has its own line all the same. A line that is closed before or
// after its first use is forgotten.
func TestLinesOfOneName(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing is left to read
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var last atomic.Uint32 // byte of the address that the name has now
	names := nameServer(t, &last)
	dialer := net.Dialer{
		// Connections of others do not get a port that is bound before its first use.
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", names)
		}},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			controlled := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
			if controlled != nil {
				return controlled
			}
			return err
		},
	}
	server := "mongos.example.:" + port
	last.Store(1)
	ls := upstream.NewLines(dialer)
	one, err := ls.DialContext(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close() //nolint:errcheck // it may be closed
	local := upstream.Below(one).LocalAddr()
	ls.From(local)
	last.Store(2)
	two, err := ls.DialContext(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close() //nolint:errcheck // as above
	if got := upstream.Below(two).LocalAddr().String(); got != local.String() || one.RemoteAddr().String() == two.RemoteAddr().String() {
		t.Fatalf("from %s to %s, and from %s to %s", local, one.RemoteAddr(), got, two.RemoteAddr())
	}
	first := &dialed{nc: one, id: "1", server: server}
	second := &dialed{nc: two, id: "2", server: server}
	if got := ls.Of(&mnet.Connection{ReadWriteCloser: first, Describer: first}); got != one {
		t.Errorf("the line of the first connection is %v, want %v", got, one)
	}
	if n := ls.Known(); n != 2 {
		t.Errorf("%d lines are known, want 2", n)
	}
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	if got := ls.Of(&mnet.Connection{ReadWriteCloser: second, Describer: second}); got != nil {
		t.Errorf("the line of a closed connection is %v", got)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if n := ls.Known(); n != 0 {
		t.Errorf("%d lines are known after all are closed", n)
	}
}

// nameServer answers each question with the address 127.0.0.x, where x is last.
func nameServer(t *testing.T, last *atomic.Uint32) string {
	t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	t.Cleanup(func() {
		_ = c.Close()
		g.Wait()
	})
	g.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(b[:n]); err != nil {
				t.Error(err)
				return
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, byte(last.Load())}},
				}}
			}
			out, err := m.Pack()
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := c.WriteTo(out, from); err != nil {
				return
			}
		}
	})
	return c.LocalAddr().String()
}
