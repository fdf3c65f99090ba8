package proxy

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"

	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/names"
	"dbcontroller.dev/internal/proxy/upstream"
)

// answer serves one message and writes the reply. It returns false if the connection is of no further use.
func (p *Proxy) answer(ctx context.Context, cl *peer, m incoming) bool {
	c, err := parse(m.Message)
	if err != nil {
		return false
	}
	reply := p.safely(ctx, cl, c)
	if out := cl.passing; out != nil {
		cl.passing = nil
		defer out.done()
		return reply != nil && ctx.Err() == nil && out.finish()
	}
	if reply == nil {
		return false
	}
	if c.unasked || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	// Give back the request's memory first, so that commands never wait for each other's.
	m.done()
	out := message.Message{ID: p.requests.Add(1), ReplyTo: m.ID, Query: m.Query, Body: reply}
	for p.streams(c, reply) {
		out.Flags = message.MoreToCome
		if !p.deliver(ctx, cl, out) {
			return false
		}
		if c, err = p.departure.known(c); err != nil {
			return false
		}
		if reply = p.safely(ctx, cl, c); reply == nil || ctx.Err() != nil {
			return false
		}
		out = message.Message{ID: p.requests.Add(1), ReplyTo: out.ID, Body: reply}
	}
	ok := p.deliver(ctx, cl, out)
	// Nothing keeps a part of the reply to a getMore, and no other replies are large again and again.
	if c.verb == "getMore" && !c.transaction {
		message.Reuse(reply)
	}
	return ok
}

// safely serves a command. A fault of the proxy ends one connection, and not those of all clients. Then the
// reply is nil.
func (p *Proxy) safely(ctx context.Context, cl *peer, c command) (reply bsoncore.Document) {
	defer p.departure.begin(c)()
	_ = p.faults.run("a command", func() { reply = p.handle(ctx, cl, c) })
	return reply
}

// handle serves a command.
func (p *Proxy) handle(ctx context.Context, cl *peer, c command) bsoncore.Document {
	if p.users != nil {
		if reply := p.admit(ctx, cl, &c); reply != nil {
			return reply
		}
	}
	if reply := p.own(ctx, cl, c); reply != nil {
		return reply
	}
	if why := p.refuses(c); why != "" {
		return failure(codeNotSupported, "the proxy does not serve "+c.verb+": "+why)
	}
	switch {
	case c.transaction:
		return p.transact(ctx, c)
	case c.verb == "getMore":
		return p.more(ctx, cl, c)
	case c.verb == "killCursors":
		return p.kill(ctx, c)
	case c.verb == "bulkWrite":
		return p.bulk(ctx, c)
	}
	if c.verb == "listCollections" && p.moves(c.database) {
		return p.list(ctx, c)
	}
	d := p.deployment(c)
	if d == nil {
		return p.pass(ctx, c)
	}
	if c.isWrite() {
		return p.write(ctx, d, c)
	}
	return p.read(ctx, d, c)
}

// from is the server that has answered.
type from struct {
	address address.Address
	sharded bool
	time    bsoncore.Document // the $clusterTime in its reply; nil: none
}

// request is a message with this body.
func request(body bsoncore.Document) message.Message { return message.Message{Body: body} }

// exchange sends the message of a user's command to a server of a cluster and returns the reply. After an error
// the outcome is unknown.
func (p *Proxy) exchange(ctx context.Context, u *user, cluster *upstream.Cluster, want upstream.Want, m message.Message) (bsoncore.Document, from, error) {
	return p.exchangeTo(ctx, u, cluster, want, m, nil)
}

// exchangeTo is exchange for a reply that may be passed on while it arrives; nil: it is not.
func (p *Proxy) exchangeTo(ctx context.Context, u *user, cluster *upstream.Cluster, want upstream.Want, m message.Message, to upstream.Taker) (bsoncore.Document, from, error) {
	m, err := p.fit(&want, m)
	if err != nil {
		return nil, from{}, err
	}
	return p.send(ctx, u, cluster, want, m, to)
}

// send is exchangeTo for a message that fits already.
func (p *Proxy) send(ctx context.Context, u *user, cluster *upstream.Cluster, want upstream.Want, m message.Message, to upstream.Taker) (bsoncore.Document, from, error) {
	as, err := p.loginOf(u)
	if err != nil {
		return nil, from{}, err
	}
	conn, err := cluster.Conn(ctx, as, want)
	if err != nil {
		p.noteRefused(u, err)
		return nil, from{}, err
	}
	defer conn.Release()
	// With a reply to each message the proxy knows when a write has ended.
	out := message.Message{ID: p.requests.Add(1), Body: m.Body, Sequences: m.Sequences}
	size := len(m.Body) + 64
	for _, s := range m.Sequences {
		size += len(s.Docs) + len(s.Name) + 16
	}
	reply, err := conn.ExchangeTo(ctx, out.Append(make([]byte, 0, size)), to)
	if err != nil {
		return nil, from{}, err
	}
	server := from{address: conn.Address(), sharded: conn.Server().Kind == description.ServerKindMongos}
	if v, err := reply.Body.LookupErr("$clusterTime"); err == nil {
		doc, _ := v.DocumentOK()
		server.time = slices.Clone(doc) // it is removed from the reply
	}
	body, err := p.untimed(reply.Body)
	if err == nil {
		body, err = unelected(body)
	}
	return body, server, err
}

// unreachable is the reply after a server did not answer, as a router gives it.
func unreachable(c command, err error) bsoncore.Document {
	if errors.Is(err, upstream.ErrLogin) {
		return failure(codeAuthenticationFailed, "the proxy serves this user with a login that the cluster refuses")
	}
	if c.retryable && c.isWrite() {
		return failure(codeHostUnreachable, err.Error(), labelRetryable)
	}
	return failure(codeHostUnreachable, err.Error())
}

// pass serves a command on collections that do not move.
func (p *Proxy) pass(ctx context.Context, c command) bsoncore.Document {
	want, ok := upstream.WantOf(c.preference)
	if !ok {
		return failure(codeInvalidReadPrefers, "invalid $readPreference")
	}
	if c.isWrite() {
		want = upstream.Want{}
		ctx = p.life // it goes on without the client, as at a server
	}
	reply, server, err := p.serveAt(ctx, c, p.home, want, c.msg)
	if err != nil {
		return unreachable(c, err)
	}
	p.keepCursor(c, reply, cursor{cluster: p.home, server: server.address, watches: c.verb == "aggregate" && names.Watches(c.msg.Body)})
	return reply
}
