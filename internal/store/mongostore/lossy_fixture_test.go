package mongostore

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
)

// lossyNet is a network that loses the answers to some commands, after the server has done
// what they say, or the commands themselves.
type lossyNet struct {
	command atomic.Pointer[string]
	left    atomic.Int64
	lost    atomic.Int64
	cuts    atomic.Bool // what is asked does not arrive, either
	onLoss  atomic.Pointer[func()]
}

// then has f called with each loss from now on.
func (l *lossyNet) then(f func()) { l.onLoss.Store(&f) }

func (l *lossyNet) noteLoss() {
	l.lost.Add(1)
	if f := l.onLoss.Load(); f != nil {
		(*f)()
	}
}

func (l *lossyNet) lose(command string, times int64) {
	l.left.Store(times)
	l.command.Store(&command)
}

func (l *lossyNet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &lossyConn{Conn: conn, network: l}, err
}

type lossyConn struct {
	net.Conn
	network *lossyNet
	lose    atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if command := c.network.command.Load(); command != nil && bytes.Contains(b, []byte(*command)) && c.network.left.Add(-1) >= 0 {
		if c.network.cuts.Load() {
			c.network.noteLoss()
			return 0, io.ErrClosedPipe
		}
		c.lose.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lose.Load() && n > 0 {
		c.network.noteLoss()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func newLossyEngine(t *testing.T) (*engine, *lossyNet) {
	t.Helper()
	uri, name := mongotest.Database(t)
	l := new(lossyNet)
	return &engine{t: t, ns: openNamespace(t, Config{URI: uri, Database: name, AppName: t.Name()}, l)}, l
}

// openNamespace opens a namespace until the test ends; nil is the driver's own dialer.
func openNamespace(t *testing.T, cfg Config, dialer options.ContextDialer) *Namespace {
	t.Helper()
	ns, err := open(t.Context(), cfg, dialer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := ns.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// open is Open with a dialer. Nil means the driver's own.
func open(ctx context.Context, cfg Config, dialer options.ContextDialer) (*Namespace, error) {
	c, err := openConn(ctx, cfg, dialer)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}
