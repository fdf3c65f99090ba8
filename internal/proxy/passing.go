package proxy

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

// A large reply to a getMore goes to its client while it arrives. The lengths at its beginning include what stands
// behind the batch: the number of the cursor, its namespace, and the times. The proxy may change these only when they
// have come. So it passes a reply on only if it knows by the lengths what stands there, and what length that will have.

const (
	// passTime bounds the time for which a client can delay the reading of a reply. Then the rest is read into memory,
	// as other replies are. So a slow client does not keep the connection to the server, and a switch that reads the
	// cursor to its end does not wait for it.
	passTime = 50 * time.Millisecond
	// idSize is the length of the number of a cursor: its type, its name, and the number.
	idSize = 1 + len("id\x00") + 8
	// nsSize is the length of an empty namespace: its type, its name, its length, and a zero.
	nsSize = 1 + len("ns\x00") + 4 + 1
	// okSize, operationSize and clusterSize are the lengths of what each member of a cluster writes behind the cursor:
	// ok, operationTime, and $clusterTime with its signature.
	okSize        = 1 + len("ok\x00") + 8
	operationSize = 1 + len("operationTime\x00") + 8
	clusterSize   = 1 + len("$clusterTime\x00") + 4 + 1 + len("clusterTime\x00") + 8 +
		1 + len("signature\x00") + 4 + 1 + len("hash\x00") + 4 + 1 + 20 + 1 + len("keyId\x00") + 8 + 1 + 1
)

// passing is the reply to a getMore that goes to its client while it arrives. It implements upstream.Taker.
type passing struct {
	p      *Proxy
	cl     *peer
	head   message.Message // the reply without its body
	ns     string          // of the collection, as the server writes it; empty: the client gets it as it is
	face   string          // that the client gets in place of ns
	timed  bool            // the reply keeps its times
	parts  message.NextBatch
	done   func()        // gives memory back
	delay  time.Duration // for which the client may still delay the reading
	failed error         // of the client's connection
	left   []byte        // of the head, for finish
	batch  []byte        // the rest of it, for finish
	tail   []byte        // what stands behind it
}

// passes returns the reply to a getMore that may go to its client while it arrives; nil: it must be whole first.
func (p *Proxy) passes(cl *peer, c command, one cursor) *passing {
	switch {
	case c.unasked, c.msg.Query, p.whole.Load():
		return nil
	case len(c.msg.Body) > smallMessage: // its memory is given back when the reply is there
		return nil
	case one.watches: // the proxy decides when the events are there whether the client gets them
		return nil
	case one.rest != nil && one.rest.by != nil: // the proxy notes the last document
		return nil
	}
	if _, ok := cl.conn.(*tls.Conn); ok { // it cannot go on after a deadline
		return nil
	}
	out := &passing{p: p, cl: cl, timed: len(p.clusters()) < 2}
	if one.names != nil && !one.names.Same() {
		name, ok := one.names.To[c.collection]
		if !ok {
			return nil
		}
		out.ns, out.face = one.names.Place+"."+name, c.database+"."+c.collection
	}
	out.head = message.Message{ID: p.requests.Add(1), ReplyTo: c.msg.ID}
	return out
}

// Begin implements upstream.Taker.
func (o *passing) Begin(n message.NextBatch) bool {
	if o.ns != "" {
		if n.Cursor != idSize+nsSize+len(o.ns) {
			return false
		}
		n.Cursor += len(o.face) - len(o.ns)
	}
	if !o.timed {
		switch n.Rest {
		case okSize: // of a server that is no member
		case okSize + operationSize + clusterSize:
			n.Rest -= clusterSize
		default:
			return false
		}
	}
	// The connection to the server must not wait for the clients of other replies.
	size := int64(min(n.Batch, message.MaxMessage))
	if !o.p.memory.TryAcquire(size) {
		return false
	}
	o.parts, o.delay, o.done = n, passTime, func() { o.p.memory.Release(size) }
	o.left = o.head.AppendNextBatch(nil, n)
	o.cl.passing, o.cl.until = o, time.Time{} // the next reply has a deadline of its own
	return true
}

// Take implements upstream.Taker.
func (o *passing) Take(b []byte) int {
	if o.left = o.left[o.write(o.left):]; len(o.left) > 0 {
		return 0
	}
	return o.write(b)
}

// write returns how much of b the client takes in time. A client that is gone takes all: the connection to the server
// is still good, and the cursor is open.
func (o *passing) write(b []byte) int {
	if len(b) == 0 || o.failed != nil {
		return len(b)
	}
	begun := time.Now()
	defer func() { o.delay -= time.Since(begun) }()
	err := o.cl.conn.SetWriteDeadline(begun.Add(o.delay))
	n := 0
	if err == nil {
		n, err = o.cl.conn.Write(b)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		o.failed = err
		return len(b)
	}
	return n
}

// Keep implements upstream.Taker.
func (o *passing) Keep(b []byte) { o.batch = b }

// passed ends a getMore whose reply has begun to go to its client. reply is without its documents. nil: the connection
// of the client must end, as that of a server that breaks in the middle of a reply.
//
// No check of a whole reply is lost. A reply that begins with a batch is a success, so a fence cannot have ended the
// cursor. Change streams are not passed on. Documents of a query are those of its place, whatever happens meanwhile.
func (p *Proxy) passed(c command, id int64, one cursor, reply bsoncore.Document, err error, out *passing) bsoncore.Document {
	if err != nil && !errors.Is(err, message.ErrMalformed) {
		p.cursors.drop(c.user, id)
		return nil
	}
	var parts message.NextBatch
	var tail []byte
	open, ok := cursorOf(reply) != 0, err == nil && succeeded(reply)
	if ok {
		reply = one.reply(reply, id)
		parts, tail, ok = message.TailOf(reply)
		parts.Batch = out.parts.Batch
	}
	if !ok || parts != out.parts {
		// No server that is known does it. Once is enough.
		p.whole.Store(true)
		p.log.Warn("a reply did not end as it began; replies are read whole from now on", slog.String("server", string(one.server)))
		p.cursors.drop(c.user, id)
		return nil
	}
	if open {
		p.cursors.keep(id, one)
	} else {
		p.cursors.drop(c.user, id)
	}
	out.tail = tail
	return reply
}

// finish writes what the client did not take yet. It returns false if the connection is of no further use.
func (o *passing) finish() bool {
	defer message.Reuse(o.batch)
	if o.failed != nil {
		return false
	}
	for _, part := range [][]byte{o.left, o.batch, o.tail} {
		for b := range slices.Chunk(part, piece) {
			if o.cl.send(b) != nil {
				return false
			}
		}
	}
	return true
}
