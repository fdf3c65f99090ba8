package conn

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
)

// connections tracks the connections of one client. When a user is dropped, the server logs out its
// connections; a user created later with the same name does not count. The driver keeps such
// connections in its pool, where every command then fails. connections closes them, so that the
// driver opens new ones and logs in again.
type connections struct {
	dialer options.ContextDialer
	dialed atomic.Uint64

	mu   sync.Mutex
	open map[*connection]time.Time // when it was opened
}

func newConnections(dialer options.ContextDialer) *connections {
	if dialer == nil {
		dialer = &net.Dialer{} // the driver's own
	}
	return &connections{dialer: dialer, open: map[*connection]time.Time{}}
}

func (c *connections) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	inner, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	made := &connection{Conn: inner, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[made] = time.Now()
	c.dialed.Add(1)
	return made, nil
}

// Connections returns the number of connections opened so far. Behind a mongos it shows a restore
// only if the mongos stops too, as MongoDB's procedures for a restore demand.
func (n *Conn) Connections() uint64 { return n.conns.dialed.Load() }

// monitor watches failed commands only, so successful ones cost nothing.
func (c *connections) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Failed: func(_ context.Context, e *event.CommandFailedEvent) {
		if loggedOut(e.Failure) {
			c.closeBefore(time.Now().Add(-e.Duration))
		}
	}}
}

// closeBefore closes the connections that are older than a refused command. Newer ones have logged
// in since, and closing them would break other commands.
func (c *connections) closeBefore(began time.Time) {
	c.mu.Lock()
	var former []*connection
	for conn, made := range c.open {
		if made.Before(began) {
			former = append(former, conn)
		}
	}
	// Unlock first, because Close takes the lock too.
	c.mu.Unlock()
	for _, conn := range former {
		_ = conn.Close() // the driver closes it again and reports errors
	}
}

// loggedOut reports whether the server refused a command because its connection is not logged in. A
// missing privilege has the same code, but a new connection does not cure it.
func loggedOut(err error) bool {
	var answer driver.Error
	return errors.As(err, &answer) && answer.Code == CodeUnauthorized && strings.Contains(answer.Message, "requires authentication")
}

type connection struct {
	net.Conn
	of *connections
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
