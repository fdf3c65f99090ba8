package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"dbcontroller.dev/internal/proxy/message"
)

// The driver dials the connections, logs in on them, and keeps them. For each exchange it starts two goroutines that
// watch the context, waits for both, and reads a reply in two parts. That is more than the proxy itself takes for a
// small command. So messages of clients go directly over the network connection below that of the driver.

// lines are the network connections of a cluster.
type lines struct {
	dialer net.Dialer

	mu     sync.Mutex
	serial uint64
	dialed map[string]*line // by local address; they carry no messages of clients, such as those of the driver's monitors
	used   map[string]*line // by the driver's name of the connection
}

func newLines() *lines { return &lines{dialed: map[string]*line{}, used: map[string]*line{}} }

// line is a network connection to a server.
type line struct {
	net.Conn
	local  numbered
	lines  *lines
	forget func() // called with lines.mu held
	in     *bufio.Reader
	raw    syscall.RawConn // below Conn; nil: it has none
}

// numbered is the local address of a line, with a serial number. The driver returns the local address of a connection as
// text, and nothing else that leads to the line. Without the number two lines can have the same text: the kernel gives
// one local port to connections to several addresses, which one host name may have.
type numbered struct {
	net.Addr
	text string
}

func (n numbered) String() string { return n.text }

// LocalAddr returns an address that no other line of the cluster has.
func (l *line) LocalAddr() net.Addr { return l.local }

// lineBuffer is the size of replies that come with one read.
const lineBuffer = 8 << 10

// DialContext implements options.ContextDialer.
func (ls *lines) DialContext(ctx context.Context, network, server string) (net.Conn, error) {
	conn, err := ls.dialer.DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.serial++
	local := numbered{conn.LocalAddr(), fmt.Sprintf("%s#%d", conn.LocalAddr(), ls.serial)}
	l := &line{Conn: conn, local: local, lines: ls}
	l.forget = func() { delete(ls.dialed, local.text) }
	ls.dialed[local.text] = l
	return l, nil
}

// Close also forgets the line.
func (l *line) Close() error {
	l.lines.mu.Lock()
	l.forget()
	l.lines.mu.Unlock()
	return l.Conn.Close()
}

// of returns the line below a connection of the driver; nil: it is not known.
func (ls *lines) of(c *mnet.Connection) *line {
	if ls == nil {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	name := c.ID()
	if l := ls.used[name]; l != nil {
		return l
	}
	at, ok := c.ReadWriteCloser.(interface{ LocalAddress() address.Address })
	if !ok {
		return nil
	}
	local := string(at.LocalAddress())
	l := ls.dialed[local]
	// The driver's deadline for the login may still be set.
	if l == nil || l.SetDeadline(time.Time{}) != nil {
		return nil
	}
	delete(ls.dialed, local)
	ls.used[name], l.in = l, bufio.NewReaderSize(l.Conn, lineBuffer)
	l.forget = func() { delete(ls.used, name) }
	if c, ok := l.Conn.(syscall.Conn); ok {
		l.raw, _ = c.SyscallConn() // nil after an error
	}
	return l
}

// alive reports whether the server keeps the connection open, as far as it is known here. Nothing may be under way on
// it, so any byte that waits is a fault.
func (l *line) alive() bool {
	if l.raw == nil {
		return true
	}
	open := false
	err := l.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		open = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
		return true // do not wait
	})
	return err == nil && open
}

// exchange sends a request and returns the reply. After an error the line is of no further use. name is that of the
// connection, for the error. to is as in ExchangeTo.
func (l *line) exchange(ctx context.Context, name string, request []byte, to Taker) (m message.Message, err error) {
	if err := ctx.Err(); err != nil {
		return m, topology.ConnectionError{ConnectionID: name, Wrapped: err}
	}
	// A deadline in the past ends what waits for the network.
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			err = topology.ConnectionError{ConnectionID: name, Wrapped: ctx.Err()}
		}
	}()
	if _, err := l.Write(request); err != nil {
		return m, topology.ConnectionError{ConnectionID: name, Wrapped: err}
	}
	h, rest, err := message.ReadHeader(l.in, message.MaxMessage)
	taken := false
	if err == nil {
		m, taken, err = l.take(h, request, rest, to)
	}
	var b []byte // the caller's
	if err == nil && !taken {
		b = message.Buffer(rest)
		_, err = io.ReadFull(l.in, b)
	}
	if err != nil {
		return m, topology.ConnectionError{ConnectionID: name, Wrapped: err}
	}
	if taken {
		return m, nil
	}
	if m, err = message.Decode(h, b); err != nil {
		return m, fmt.Errorf("%s sent a reply that is no message: %w", l.RemoteAddr(), err)
	}
	return m, nil
}
