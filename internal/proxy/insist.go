package proxy

import (
	"context"
	"errors"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// A driver sends a command again once. During an election it may then meet a connection of a second proxy that
// has not noticed the end of the server either. The server's machine resets such a connection when the command comes.
// So the proxy itself sends a command again then, if that is safe, as a router does. Its driver has learned of the lost
// server by then, and the next try waits for another one. All other failures are for the driver of the client, which
// may be told not to repeat.

// attempts is how often the proxy sends a command at most, as a router does.
const attempts = 4

// serveAt is exchange for the command of a client, which it sends again as insist does.
func (p *Proxy) serveAt(ctx context.Context, c command, cluster *upstream.Cluster, want upstream.Want, m message.Message) (bsoncore.Document, from, error) {
	m, err := p.fit(&want, m)
	if err != nil {
		return nil, from{}, err
	}
	return p.insist(ctx, c, cluster, want, m)
}

// insist is serveAt for a message that fits already. It sends a read, or a write that servers know by its number,
// again if its server's end of the connection is gone.
func (p *Proxy) insist(ctx context.Context, c command, cluster *upstream.Cluster, want upstream.Want, m message.Message) (bsoncore.Document, from, error) {
	for left := attempts - 1; ; left-- {
		reply, server, err := p.send(ctx, c.user, cluster, want, m, nil)
		if left == 0 || ctx.Err() != nil || !c.repeatable() || !gone(err) {
			return reply, server, err
		}
	}
}

// gone reports whether nobody has read a command: a server that has, and then breaks, ends its connection in order. It
// is likely and no proof, so only what is safe is sent again.
func gone(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// repeatable reports whether a command may be sent again after its outcome became unknown.
func (c command) repeatable() bool {
	if c.isWrite() {
		return c.retryable
	}
	return !c.transaction && reads[c.verb]
}

// reads are the commands that only read, and begin at their beginning each time.
var reads = map[string]bool{
	"find": true, "aggregate": true, "count": true, "distinct": true, "listCollections": true, "listIndexes": true,
}
