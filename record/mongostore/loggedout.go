package mongostore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
)

// connections are those of one client. The server logs a connection out when its user is
// dropped, and a user of the same name that is created later is another one. The driver keeps
// such connections in its pool, where every command on them is refused for good. connections
// closes them, so that the driver makes new ones, which log in.
type connections struct {
	dialer options.ContextDialer

	mu   sync.Mutex
	open map[*connection]time.Time // when it was made
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
	return made, nil
}

// monitor looks at failed commands alone, which costs successful ones nothing.
func (c *connections) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Failed: func(_ context.Context, e *event.CommandFailedEvent) {
		if loggedOut(e.Failure) {
			c.closeBefore(time.Now().Add(-e.Duration))
		}
	}}
}

// closeBefore closes the connections that were made before a command began that was refused.
// Later ones have logged in since, and closing them would break what others do there.
func (c *connections) closeBefore(began time.Time) {
	c.mu.Lock()
	var former []*connection
	for conn, made := range c.open {
		if made.Before(began) {
			former = append(former, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range former {
		_ = conn.Close() // the driver closes it again, and reports what matters
	}
}

// loggedOut reports whether the server refused a command because nobody is logged in on its
// connection. A lacking privilege has the same code, and a new connection does not cure it.
func loggedOut(err error) bool {
	var answer driver.Error
	return errors.As(err, &answer) && answer.Code == codeUnauthorized && strings.Contains(answer.Message, "requires authentication")
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
