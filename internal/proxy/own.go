package proxy

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/upstream"
)

// own answers the commands that are about the proxy and not about data. It returns nil for others.
func (p *Proxy) own(ctx context.Context, cl *peer, c command) bsoncore.Document {
	switch c.verb {
	case "hello", "isMaster", "ismaster":
		return p.hello(ctx, cl, c)
	case "ping":
		return success()
	case "endSessions", "refreshSessions", "startSession", "killSessions", "killAllSessions":
		return p.everywhere(ctx, c)
	}
	return nil
}

// hello answers as a router does. So drivers do not look for members behind the proxy's back, and use
// sessions, transactions and retryable writes. Limits are those of the home cluster's primary.
func (p *Proxy) hello(ctx context.Context, cl *peer, c command) bsoncore.Document {
	conn, err := p.home.Conn(ctx, upstream.Want{Mode: upstream.PrimaryPreferred})
	if err != nil {
		return failure(codeHostUnreachable, err.Error())
	}
	server := conn.Server()
	conn.Release()
	b := bsoncore.NewDocumentBuilder()
	if c.verb == "hello" {
		b.AppendBoolean("isWritablePrimary", true)
	} else {
		b.AppendBoolean("ismaster", true)
	}
	lowest, highest := int32(0), int32(0)
	if v := server.WireVersion; v != nil {
		lowest, highest = v.Min, v.Max
	}
	return b.AppendString("msg", "isdbgrid").AppendBoolean("helloOk", true).
		AppendInt32("maxBsonObjectSize", int32(server.MaxDocumentSize)).
		AppendInt32("maxMessageSizeBytes", int32(min(server.MaxMessageSize, message.MaxMessage)-roomForNames)).
		AppendInt32("maxWriteBatchSize", int32(server.MaxBatchCount)).
		AppendDateTime("localTime", time.Now().UnixMilli()).
		AppendInt32("logicalSessionTimeoutMinutes", 30).
		AppendInt64("connectionId", cl.id).
		AppendInt32("minWireVersion", lowest).AppendInt32("maxWireVersion", highest).
		AppendBoolean("readOnly", false).AppendDouble("ok", 1).Build()
}

// roomForNames is what a message may grow by names and numbers of statements of the place.
const roomForNames = 2 << 20

// everywhere sends a command about sessions to all clusters, since a session may have used each of them.
// The answer is that of the home cluster.
func (p *Proxy) everywhere(ctx context.Context, c command) bsoncore.Document {
	ctx, cancel := context.WithTimeout(ctx, sessionsTimeout)
	defer cancel()
	clusters := p.clusters()
	replies := make([]bsoncore.Document, len(clusters))
	var g sync.WaitGroup
	for i, cluster := range clusters {
		g.Go(func() {
			reply, _, err := p.exchange(ctx, cluster, upstream.Want{Mode: upstream.PrimaryPreferred}, c.msg)
			if err != nil {
				reply = failure(codeHostUnreachable, err.Error())
			}
			replies[i] = reply
		})
	}
	g.Wait()
	return replies[0] // of home
}

// sessionsTimeout bounds commands about sessions. Drivers send one when they close, and wait for it; servers
// end sessions by themselves.
const sessionsTimeout = 5 * time.Second
