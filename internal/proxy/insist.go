package proxy

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// A driver sends a command again once. During an election it may then meet a connection of a second proxy that
// has not noticed the end of the server either. So the proxy itself sends again what may be sent again, as a
// router does. Its driver has learned of the lost server by then, and the next try waits for another one.

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
// again if its server is lost or is no primary any longer.
func (p *Proxy) insist(ctx context.Context, c command, cluster *upstream.Cluster, want upstream.Want, m message.Message) (bsoncore.Document, from, error) {
	for left := attempts - 1; ; left-- {
		reply, server, err := p.send(ctx, c.user, cluster, want, m)
		if left == 0 || ctx.Err() != nil || !c.repeatable() || !unserved(c, reply, err) {
			return reply, server, err
		}
	}
}

// lostError is the error of a server that gave no reply to a command.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// unserved reports whether another server may serve a command.
func unserved(c command, reply bsoncore.Document, err error) bool {
	if err != nil {
		return errors.As(err, &lostError{})
	}
	if c.retryable {
		return labelled(reply, labelRetryable)
	}
	return codeOf(reply) == codeHostUnreachable // as unelected gives it
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
