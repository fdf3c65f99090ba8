package storetest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/internal/store/mongostore/conn"
)

// LossyNet is a network that loses the answers to some commands, after the server has done
// what they say, or the commands themselves.
type LossyNet struct {
	command atomic.Pointer[string]
	left    atomic.Int64
	Lost    atomic.Int64
	Cuts    atomic.Bool // what is asked does not arrive, either
	onLoss  atomic.Pointer[func()]
}

// Then has f called with each loss from now on.
func (l *LossyNet) Then(f func()) { l.onLoss.Store(&f) }

func (l *LossyNet) noteLoss() {
	l.Lost.Add(1)
	if f := l.onLoss.Load(); f != nil {
		(*f)()
	}
}

// Lose makes the connection break after the next commands of a name, before their answers.
func (l *LossyNet) Lose(command string, times int64) {
	l.left.Store(times)
	l.command.Store(&command)
}

func (l *LossyNet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &lossyConn{Conn: conn, network: l}, err
}

type lossyConn struct {
	net.Conn
	network *LossyNet
	lose    atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if command := c.network.command.Load(); command != nil && bytes.Contains(b, []byte(*command)) && c.network.left.Add(-1) >= 0 {
		if c.network.Cuts.Load() {
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

// NewLossyEngine returns an engine whose connections lose answers.
func NewLossyEngine(t *testing.T) (*Engine, *LossyNet) {
	t.Helper()
	uri, name := mongotest.Database(t)
	l := new(LossyNet)
	return &Engine{T: t, NS: OpenNamespace(t, conn.Config{URI: uri, Database: name, AppName: t.Name()}, l)}, l
}

// OpenNamespace opens a namespace until the test ends; nil is the driver's own dialer.
func OpenNamespace(t *testing.T, cfg conn.Config, dialer options.ContextDialer) *mongostore.Namespace {
	t.Helper()
	ns, err := open(t.Context(), cfg, dialer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), conn.CloseTimeout)
		defer cancel()
		if err := ns.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// open is Open with a dialer. Nil means the driver's own.
func open(ctx context.Context, cfg conn.Config, dialer options.ContextDialer) (*mongostore.Namespace, error) {
	c, err := conn.Open(ctx, cfg, dialer)
	if err != nil {
		return nil, err
	}
	return mongostore.New(c), nil
}
