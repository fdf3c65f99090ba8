package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/proxy/message"
)

// alone is a proxy without clusters, for clients that never get so far.
func alone(t *testing.T, memory int64) (address string, p *Proxy) {
	t.Helper()
	p = &Proxy{cfg: Config{Connections: 100}, memory: semaphore.NewWeighted(memory), asked: semaphore.NewWeighted(memory), log: discard}
	p.life, p.stop = context.WithCancel(t.Context())
	p.closing, p.end = context.WithCancel(p.life)
	p.waiting, p.stopWaits = context.WithCancel(p.life)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), p
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ping proves that the proxy serves a client.
func ping(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := bson.Marshal(bson.D{{Key: "ping", Value: 1}, {Key: "$db", Value: "admin"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(message.Message{ID: 1, Body: raw}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	h, rest, err := message.ReadHeader(c, message.MaxMessage)
	if err != nil || h.ReplyTo != 1 || rest == 0 {
		t.Fatalf("%+v, %v", h, err)
	}
}

// TestHostileClients: a client that breaks the protocol loses its connection, and no other one notices.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	address, _ := alone(t, message.MaxMessage)
	deep := bson.A{}
	for range 600 {
		deep = bson.A{bson.D{{Key: "$facet", Value: bson.D{{Key: "a", Value: deep}}}}}
	}
	nested, err := bson.Marshal(bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: deep}, {Key: "$db", Value: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	header := func(length, op uint32) []byte {
		b := binary.LittleEndian.AppendUint32(nil, length)
		b = append(b, 1, 0, 0, 0, 0, 0, 0, 0)
		return binary.LittleEndian.AppendUint32(b, op)
	}
	for name, b := range map[string][]byte{
		"no protocol":      []byte("GET / HTTP/1.1\r\nHost: mongo\r\n\r\n"),
		"a length bomb":    header(0x7fffffff, 2013),
		"a short length":   header(1, 2013),
		"compressed":       append(header(20, 2012), 0, 0, 0, 0),
		"no body":          append(header(20, 2013), 0, 0, 0, 0),
		"a deep pipeline":  message.Message{ID: 1, Body: nested}.Append(nil),
		"an empty command": message.Message{ID: 1, Body: []byte{5, 0, 0, 0, 0}}.Append(nil),
	} {
		c := dial(t, address)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		// The end of the connection, at once and without an answer.
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%s: answered", name)
		}
		ping(t, dial(t, address))
	}
}

// TestMemoryIsReserved: clients that announce large messages and do not send them take no memory from the
// system, and the others wait until they are gone.
func TestMemoryIsReserved(t *testing.T) {
	t.Parallel()
	address, p := alone(t, message.MaxMessage)
	large := binary.LittleEndian.AppendUint32(nil, message.MaxMessage)
	large = append(large, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0x07, 0, 0)
	c := dial(t, address)
	if _, err := c.Write(large); err != nil {
		t.Fatal(err)
	}
	for p.memory.TryAcquire(message.MaxMessage / 2) { // until the announced message is reserved
		p.memory.Release(message.MaxMessage / 2)
		time.Sleep(time.Millisecond)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ping(t, dial(t, address))
}

// TestRepliesAreReserved: a client does not read its large reply. The reply counts, so that others of the same
// kind have to wait instead of taking all memory. The client's end frees it.
func TestRepliesAreReserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{memory: message.MaxMessage})
	large := bsoncore.NewDocumentBuilder().AppendString("_id", strings.Repeat("x", message.MaxMessage/3)).Build()
	batch := bsoncore.NewArrayBuilder().AppendDocument(large).Build()
	found := bsoncore.NewDocumentBuilder().AppendArray("firstBatch", batch).AppendInt64("id", 0).AppendString("ns", "shop.orders").Build()
	reply := bsoncore.NewDocumentBuilder().AppendDocument("cursor", found).AppendDouble("ok", 1).Build()
	w.at["v1"].on("find", func(command) bsoncore.Document { return reply })
	conn, memory := dial(t, w.addresses[0]), w.proxies[0].memory
	if _, err := conn.Write(message.Message{ID: 1, Body: doc(t, `{"find":"orders",`+session+`}`)}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	const most = message.MaxMessage * 3 / 4 // with the reply it is more than there is
	free := func() bool {
		if !memory.TryAcquire(most) {
			return false
		}
		memory.Release(most)
		return true
	}
	w.until("the reply counts", func() bool { return !free() })
	ping(t, dial(t, w.addresses[0]))
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	w.until("its memory is free", free)
}

// TestManyElements: a command of very many elements takes no memory for a list of them, also in a pipeline. It is not
// parallel, because it counts what the process allocates.
func TestManyElements(t *testing.T) {
	const elements = 1 << 20
	many := append(binary.LittleEndian.AppendUint32(nil, 4+2*elements+1), bytes.Repeat([]byte{0x0a, 0}, elements)...)
	many = append(many, 0)
	for name, body := range map[string]bsoncore.Document{
		"at the top":    append(bsoncore.Document(nil), many...),
		"in a pipeline": bsoncore.NewDocumentBuilder().AppendString("aggregate", "c").AppendArray("pipeline", bsoncore.Array(many)).Build(),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := parse(message.Message{Body: body}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > elements {
			t.Errorf("%s: it took %d bytes", name, took)
		}
	}
}

// slowLink delivers one piece until a deadline.
type slowLink struct {
	net.Conn
	from io.Reader
	left int
}

func (s *slowLink) SetReadDeadline(time.Time) error { s.left = piece; return nil }

func (s *slowLink) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := s.from.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

// TestSlowLink: a large message over a slow link is served, as long as each piece of it comes in time.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	_, p := alone(t, message.MaxMessage)
	body := bsoncore.NewDocumentBuilder().AppendString("ping", strings.Repeat("x", 4*piece)).Build()
	link := &slowLink{from: bytes.NewReader(message.Message{ID: 1, Body: body}.Append(nil)), left: piece}
	in, err := p.receive(t.Context(), &peer{conn: link}, bufio.NewReaderSize(link, readBuffer))
	if err != nil {
		t.Fatal(err)
	}
	in.done()
	if !bytes.Equal(in.Body, body) {
		t.Error("the message is another one")
	}
}

// patient is a connection without deadlines.
type patient struct{ net.Conn }

func (patient) SetReadDeadline(time.Time) error { return nil }

// TestRepliesHaveMemory: messages take all the memory that they may, as writes do that a switch holds. A large reply
// has memory all the same.
func TestRepliesHaveMemory(t *testing.T) {
	t.Parallel()
	const messages = 4
	w := newWorld(t, worldOptions{memory: messages * message.MaxMessage})
	p := w.proxies[0]
	filling := strings.Repeat("x", 2*smallMessage)
	w.at["v1"].on("find", func(command) bsoncore.Document {
		return batchOf7(t, "firstBatch", fmt.Sprintf(`{"_id":1,"filling":"%s"}`, filling), true)
	})
	header := binary.LittleEndian.AppendUint32(nil, message.MaxMessage)
	header = append(header, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0x07, 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	bodies, stop := io.Pipe()
	var g sync.WaitGroup
	defer g.Wait()
	defer stop.Close() //nolint:errcheck // it never fails
	defer cancel()
	for range messages {
		g.Go(func() {
			if _, err := p.receive(ctx, &peer{conn: patient{}}, bufio.NewReader(io.MultiReader(bytes.NewReader(header), bodies))); err == nil {
				t.Error("a message without a body was received")
			}
		})
	}
	w.until("messages have all that they may have", func() bool {
		if p.asked.TryAcquire(message.MaxMessage) {
			p.asked.Release(message.MaxMessage)
			return false
		}
		return true
	})
	conn := dial(t, w.addresses[0])
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := call(t, conn, `{"find":"orders",`+session+`}`); !succeeded(got) {
		t.Error("no reply")
	}
}
