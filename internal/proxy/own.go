package proxy

import (
	"context"
	"math"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"

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
	case "endSessions", "refreshSessions", "startSession", "killSessions":
		p.leave(c)
		return p.everywhere(ctx, c)
	case "killAllSessions":
		// The server decides whether this client may end the transactions of others.
		reply := p.everywhere(ctx, c)
		if succeeded(reply) {
			p.leave(c)
		}
		return reply
	}
	return nil
}

// hello answers as a router does. So drivers do not look for members behind the proxy's back, and use
// sessions, transactions and retryable writes. A command may go to any of the clusters, so limits are the
// lowest ones of all servers.
func (p *Proxy) hello(ctx context.Context, cl *peer, c command) bsoncore.Document {
	p.awaitChange(ctx, c)
	if p.departure.at() == leaving {
		return p.departure.farewell()
	}
	var known []description.Server
	for _, cluster := range p.clusters() {
		known = append(known, cluster.Known()...)
	}
	if len(known) == 0 {
		conn, err := p.home.Conn(ctx, nil, upstream.Want{Mode: upstream.PrimaryPreferred})
		if err != nil {
			return failure(codeHostUnreachable, err.Error())
		}
		known = append(known, conn.Server())
		conn.Release()
	}
	document, size, batch, lowest, highest := uint32(math.MaxInt32), uint32(message.MaxMessage), uint32(math.MaxInt32), int32(0), int32(math.MaxInt32)
	for _, s := range known {
		document, size, batch = min(document, s.MaxDocumentSize), min(size, s.MaxMessageSize), min(batch, s.MaxBatchCount)
		if v := s.WireVersion; v != nil {
			lowest, highest = max(lowest, v.Min), min(highest, v.Max)
		}
	}
	b := bsoncore.NewDocumentBuilder()
	if p.users != nil {
		if failed := p.greet(cl, c, b); failed != nil {
			return failed
		}
	}
	if c.verb == "hello" {
		b.AppendBoolean("isWritablePrimary", true)
	} else {
		b.AppendBoolean("ismaster", true)
	}
	return p.departure.topologyVersion(b).AppendString("msg", "isdbgrid").AppendBoolean("helloOk", true).
		AppendInt32("maxBsonObjectSize", int32(document)).
		AppendInt32("maxMessageSizeBytes", int32(size)-roomForNames).
		AppendInt32("maxWriteBatchSize", int32(batch)).
		AppendDateTime("localTime", time.Now().UnixMilli()).
		AppendInt32("logicalSessionTimeoutMinutes", 30).
		AppendInt64("connectionId", cl.id).
		AppendInt32("minWireVersion", lowest).AppendInt32("maxWireVersion", highest).
		AppendBoolean("readOnly", false).AppendDouble("ok", 1).Build()
}

// roomForNames is the most by which names of the place and numbers of statements lengthen a message.
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
			var reply bsoncore.Document
			var err error
			if fault := p.faults.run("a command about sessions", func() {
				reply, _, err = p.exchange(ctx, c.user, cluster, upstream.Want{Mode: upstream.PrimaryPreferred}, c.msg)
			}); fault != nil {
				err = fault
			}
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
