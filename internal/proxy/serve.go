package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/proxy/login"
	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/names"
	"dbcontroller.dev/internal/proxy/upstream"
)

// peer is the connection of a client.
type peer struct {
	conn  net.Conn
	id    int64 // for hello
	user  atomic.Pointer[user]
	login *login.Conversation // nil: none is under way
}

// serve serves one client until it ends the connection, breaks the protocol, or the proxy closes.
func (p *Proxy) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	defer conn.Close() //nolint:errcheck // nothing is left to write
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	cl := &peer{conn: conn, id: p.connections.Add(1)}
	// Read ahead, so that the end of the connection cancels the command that runs for it.
	next := make(chan incoming)
	p.spawn("the reader of a connection", func() {
		defer close(next)
		defer cancel()
		if err := shakeHands(ctx, conn); err != nil {
			p.log.Debug("a client's connection ends", slog.String("client", conn.RemoteAddr().String()), slog.Any("error", err))
			return
		}
		in := bufio.NewReaderSize(conn, readBuffer)
		for {
			m, err := p.receive(ctx, cl, in)
			if err != nil {
				if !errors.Is(err, io.EOF) && ctx.Err() == nil {
					p.log.Debug("a client's connection ends", slog.String("client", conn.RemoteAddr().String()), slog.Any("error", err))
				}
				return
			}
			select {
			case next <- m:
			case <-ctx.Done():
				m.done()
				return
			}
		}
	}, nil)
	for {
		select {
		case m, ok := <-next:
			if !ok {
				return
			}
			ok = p.answer(ctx, cl, m)
			m.done()
			if ok && p.closing.Err() == nil {
				continue
			}
		case <-p.closing.Done():
		}
		cancel()
		for m := range next { // the reader ends, and may have one
			m.done()
		}
		return
	}
}

// handshakeTimeout bounds the TLS handshake of a client, which proves that it may connect.
const handshakeTimeout = 10 * time.Second

func shakeHands(ctx context.Context, conn net.Conn) error {
	c, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	return c.HandshakeContext(ctx)
}

// incoming is a message of a client, whose bytes count until done, which may be called twice.
type incoming struct {
	message.Message
	done func()
}

const (
	// readBuffer is the memory of an idle connection, beside its goroutines.
	readBuffer = 4 << 10
	// smallMessage is the size of messages that need no reserved memory.
	smallMessage = 16 << 10
	// bodyTimeout is the time in which a client must send a piece of a message that has begun. The bytes of
	// the message are reserved meanwhile.
	bodyTimeout = 30 * time.Second
	// writeTimeout is the time in which a client must take a piece of a reply. The bytes of the reply are
	// reserved meanwhile.
	writeTimeout = 30 * time.Second
	piece        = 1 << 20
)

// receive reads a message. It reserves the memory before it reads more than the header.
func (p *Proxy) receive(ctx context.Context, cl *peer, r io.Reader) (in incoming, err error) {
	h, rest, err := message.ReadHeader(r, message.MaxMessage)
	if err != nil {
		return in, err
	}
	// Not before: a driver sends its first large message when it has logged in, and this one was awaited since
	// the message before.
	if rest > smallMessage && p.stranger(cl) {
		return in, fmt.Errorf("%w: %d bytes before a login", message.ErrMalformed, rest)
	}
	if in.done, err = p.reserve(ctx, rest, p.asked, p.memory); err != nil {
		return in, err
	}
	defer func() {
		if err != nil {
			in.done()
		}
	}()
	b := make([]byte, rest)
	for part := range slices.Chunk(b, piece) {
		if err := cl.conn.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
			return in, err
		}
		if _, err := io.ReadFull(r, part); err != nil {
			return in, err
		}
	}
	if err := cl.conn.SetReadDeadline(time.Time{}); err != nil {
		return in, err
	}
	in.Message, err = message.Decode(h, b)
	return in, err
}

// partOfReplies is the part of the memory for messages that only replies may take: one in so many. Writes that a switch
// holds keep their memory until its end, and could leave none for the replies to reads.
const partOfReplies = 4

// reserve waits until a message of some bytes fits into memory. done may be called twice.
func (p *Proxy) reserve(ctx context.Context, size int, memory ...*semaphore.Weighted) (done func(), err error) {
	// Writes that a switch holds keep their memory. Small messages pass, such as the commits for which the
	// switch waits; the number of connections bounds them.
	if size <= smallMessage {
		return func() {}, nil
	}
	reserved := min(int64(size), message.MaxMessage) // names can make a reply longer
	for i, m := range memory {
		if err := m.Acquire(ctx, reserved); err != nil {
			for _, before := range memory[:i] {
				before.Release(reserved)
			}
			return nil, err
		}
	}
	return sync.OnceFunc(func() {
		for _, m := range memory {
			m.Release(reserved)
		}
	}), nil
}

// answer serves one message and writes the reply. It returns false if the connection is of no further use.
func (p *Proxy) answer(ctx context.Context, cl *peer, m incoming) bool {
	c, err := parse(m.Message)
	if err != nil {
		return false
	}
	reply := p.safely(ctx, cl, c)
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
	return p.deliver(ctx, cl, out)
}

// deliver writes a reply. It returns false if the connection is of no further use.
func (p *Proxy) deliver(ctx context.Context, cl *peer, out message.Message) bool {
	done, err := p.reserve(ctx, len(out.Body), p.memory)
	if err != nil {
		return false
	}
	defer done()
	return write(cl.conn, out) == nil
}

// write sends a reply in pieces. Only the first one is copied.
func write(to net.Conn, m message.Message) error {
	first := min(len(m.Body), piece)
	pieces := [][]byte{m.AppendHead(make([]byte, 0, first+64))}
	pieces[0] = append(pieces[0], m.Body[:first]...)
	for left := range slices.Chunk(m.Body[first:], piece) {
		pieces = append(pieces, left)
	}
	for _, b := range pieces {
		if err := to.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := to.Write(b); err != nil {
			return err
		}
	}
	return nil
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
		return p.more(ctx, c)
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
	m, err := p.fit(&want, m)
	if err != nil {
		return nil, from{}, err
	}
	return p.send(ctx, u, cluster, want, m)
}

// send is exchange for a message that fits already.
func (p *Proxy) send(ctx context.Context, u *user, cluster *upstream.Cluster, want upstream.Want, m message.Message) (bsoncore.Document, from, error) {
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
	reply, err := conn.Exchange(ctx, out.Append(make([]byte, 0, size)))
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
	reply, server, err := p.exchange(ctx, c.user, p.home, want, c.msg)
	if err != nil {
		return unreachable(c, err)
	}
	p.keepCursor(c, reply, cursor{cluster: p.home, server: server.address, watches: c.verb == "aggregate" && names.Watches(c.msg.Body)})
	return reply
}
