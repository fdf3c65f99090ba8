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

	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/proxy/login"
	"dbcontroller.dev/internal/proxy/message"
)

// peer is the connection of a client.
type peer struct {
	conn  net.Conn
	id    int64 // for hello
	user  atomic.Pointer[user]
	login *login.Conversation // nil: none is under way
	until time.Time           // the deadline of conn for writes
	// passing is the reply that goes out while it arrives; nil: none. The goroutine of the command has it.
	passing *passing
}

// serve serves one client until it ends the connection, breaks the protocol, or the proxy closes. One goroutine reads a
// command, executes it and writes the reply, because handing it over to another goroutine costs a small command much
// of its time. A second goroutine reads ahead only while a command takes long.
func (p *Proxy) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	defer conn.Close() //nolint:errcheck // nothing is left to write
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	cl := &peer{conn: conn, id: p.connections.Add(1)}
	turn := turn{cancel: cancel}
	unlink := context.AfterFunc(p.closing, turn.close)
	defer unlink()
	if err := shakeHands(ctx, conn); err != nil {
		p.ended(ctx, cl, err)
		return
	}
	in := bufio.NewReaderSize(conn, readBuffer)
	ahead := p.readingAhead(ctx, cancel, cl, in)
	defer ahead.timer.Stop()
	for {
		m, err := p.receive(ctx, cl, in)
		for again := true; again && err == nil; {
			if !turn.begin() {
				m.done()
				return
			}
			ahead.begin()
			ok := p.answer(ctx, cl, m)
			m.done()
			if !turn.end() || !ok {
				cancel() // ends the reading ahead
			}
			m, again, err = ahead.end()
			if ctx.Err() != nil {
				m.done()
				return
			}
		}
		if err != nil {
			p.ended(ctx, cl, err)
			return
		}
	}
}

// ended notes why the connection of a client ends.
func (p *Proxy) ended(ctx context.Context, cl *peer, err error) {
	if !errors.Is(err, io.EOF) && ctx.Err() == nil {
		p.log.Debug("a client's connection ends", slog.String("client", cl.conn.RemoteAddr().String()), slog.Any("error", err))
	}
}

// turn lets a command that runs come to its end when the proxy closes, and ends the connection then.
type turn struct {
	cancel func()

	mu              sync.Mutex
	running, closed bool
}

func (t *turn) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if !t.running {
		t.cancel()
	}
}

// begin notes that a command runs. It returns false if none may begin.
func (t *turn) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = !t.closed
	return t.running
}

// end notes the end of a command. It returns false if it was the last one.
func (t *turn) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = false
	return !t.closed
}

// readAfter is the time after which a command counts as long.
const readAfter = 20 * time.Millisecond

// readingAhead reads the next message of a client while a long command runs for it, so that the end of the connection
// cancels the command.
type readingAhead struct {
	timer *time.Timer
	next  chan received
}

// received is the next message of a client, or the error that ends the connection.
type received struct {
	incoming
	err error
}

// readingAhead returns the reading ahead of a connection. Nothing else may read from in between begin and end.
func (p *Proxy) readingAhead(ctx context.Context, cancel func(), cl *peer, in *bufio.Reader) readingAhead {
	next := make(chan received, 1)
	finish := func(m incoming, err error) {
		if err != nil {
			cancel()
		}
		next <- received{m, err}
	}
	timer := time.AfterFunc(time.Hour, func() {
		p.spawn("the reader of a connection", func() {
			m, err := p.receive(ctx, cl, in)
			finish(m, err)
		}, func() { finish(incoming{done: func() {}}, errFault) })
	})
	timer.Stop()
	return readingAhead{timer, next}
}

// begin notes that a command runs.
func (a readingAhead) begin() { a.timer.Reset(readAfter) }

// end notes the end of the command, and waits for a message that is read ahead. ok is false if there is none.
func (a readingAhead) end() (m incoming, ok bool, err error) {
	if a.timer.Stop() {
		return incoming{done: func() {}}, false, nil
	}
	r := <-a.next
	return r.incoming, true, r.err
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
	// writeTimeout is the least time that a client has to take a piece of a reply; the most is twice as much. The bytes of the reply are
	// reserved meanwhile.
	writeTimeout = 30 * time.Second
	piece        = 1 << 20
)

// receive reads a message. It reserves the memory before it reads more than the header.
func (p *Proxy) receive(ctx context.Context, cl *peer, r *bufio.Reader) (in incoming, err error) {
	in.done = func() {}
	h, rest, err := message.ReadHeader(r, message.MaxMessage)
	if err != nil {
		return in, err
	}
	// Not before: a driver sends its first large message when it has logged in, and this one was awaited since
	// the message before.
	if rest > smallMessage && p.stranger(cl) {
		return in, fmt.Errorf("%w: %d bytes before a login", message.ErrMalformed, rest)
	}
	reserved, err := p.reserve(ctx, rest, p.asked, p.memory)
	if err != nil {
		return in, err
	}
	in.done = reserved
	defer func() {
		if err != nil {
			in.done()
		}
	}()
	b := make([]byte, rest)
	if r.Buffered() >= rest { // it has come with its header, as nearly always
		if _, err := io.ReadFull(r, b); err != nil {
			return in, err
		}
		in.Message, err = message.Decode(h, b)
		return in, err
	}
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

// deliver writes a reply. It returns false if the connection is of no further use.
func (p *Proxy) deliver(ctx context.Context, cl *peer, out message.Message) bool {
	done, err := p.reserve(ctx, len(out.Body), p.memory)
	if err != nil {
		return false
	}
	defer done()
	return cl.write(out) == nil
}

// write sends a reply in pieces. Only the first one is copied.
func (cl *peer) write(m message.Message) error {
	first := min(len(m.Body), smallMessage)
	b := append(m.AppendHead(make([]byte, 0, first+64)), m.Body[:first]...)
	if err := cl.send(b); err != nil {
		return err
	}
	for left := range slices.Chunk(m.Body[first:], piece) {
		if err := cl.send(left); err != nil {
			return err
		}
	}
	return nil
}

// send writes a piece. It sets the deadline further ahead than it must, so that few pieces need another one.
func (cl *peer) send(b []byte) error {
	if now := time.Now(); cl.until.Before(now.Add(writeTimeout)) {
		cl.until = now.Add(2 * writeTimeout)
		if err := cl.conn.SetWriteDeadline(cl.until); err != nil {
			return err
		}
	}
	_, err := cl.conn.Write(b)
	return err
}
