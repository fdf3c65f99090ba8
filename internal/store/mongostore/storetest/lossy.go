package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
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
	instead atomic.Pointer[bson.Raw]
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
	l.instead.Store(nil)
	l.next(command, times)
}

func (l *LossyNet) next(command string, times int64) {
	l.left.Store(times)
	l.command.Store(&command)
}

// Answer makes the next commands of a name be answered by answer, after the server has executed them.
func (l *LossyNet) Answer(t testing.TB, command string, times int64, answer bson.D) {
	t.Helper()
	raw := Raw(t, answer)
	l.instead.Store(&raw)
	l.next(command, times)
}

func (l *LossyNet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &lossyConn{Conn: conn, network: l}, err
}

type lossyConn struct {
	net.Conn
	network *LossyNet
	lose    atomic.Bool
	asked   atomic.Uint32 // number of the request whose answer is lost
	rest    []byte        // of an answer that takes another's place
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if command := c.network.command.Load(); command != nil && bytes.Contains(b, []byte(*command)) && c.network.left.Add(-1) >= 0 {
		if c.network.Cuts.Load() {
			c.network.noteLoss()
			return 0, io.ErrClosedPipe
		}
		if len(b) >= 8 {
			c.asked.Store(binary.LittleEndian.Uint32(b[4:]))
		}
		c.lose.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(b, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	if answer := c.network.instead.Load(); answer != nil && c.lose.Load() {
		return c.replace(b, *answer)
	}
	n, err := c.Conn.Read(b)
	if c.lose.Load() && n > 0 {
		c.network.noteLoss()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// replace reads the server's whole answer, and begins to return another one.
func (c *lossyConn) replace(b []byte, answer bson.Raw) (int, error) {
	const header, opMsg = 16, 2013
	head := make([]byte, header)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		return 0, err
	}
	if _, err := io.CopyN(io.Discard, c.Conn, int64(binary.LittleEndian.Uint32(head))-header); err != nil {
		return 0, err
	}
	c.lose.Store(false)
	var msg []byte
	for _, v := range []uint32{uint32(header + 4 + 1 + len(answer)), 1, c.asked.Load(), opMsg, 0} { //nolint:gosec // a short answer
		msg = binary.LittleEndian.AppendUint32(msg, v)
	}
	c.rest = append(append(msg, 0), answer...)
	c.network.noteLoss()
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
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
