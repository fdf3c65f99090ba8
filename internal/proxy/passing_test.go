package proxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/proxy/message"
)

// ofMember is what a member of a cluster writes behind the cursor of a reply.
const ofMember = `{"ok":1.0,"$clusterTime":{"clusterTime":{"$timestamp":{"t":5,"i":6}},"signature":{"hash":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAAAAAAA=","subType":"00"}},"keyId":{"$numberLong":"7"}}},"operationTime":{"$timestamp":{"t":5,"i":6}}}`

// filled is a document of some bytes, all different.
func filled(id byte, size int) bsoncore.Document {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{id}).Read(b) // never fails
	return bsoncore.NewDocumentBuilder().AppendInt32("_id", int32(id)).AppendBinary("filling", 0, b).Build()
}

// large is a reply to a getMore: documents of some bytes, then the rest of the cursor, then the rest of the reply.
func large(t *testing.T, size int, cursor, rest string) bsoncore.Document {
	t.Helper()
	batch := bsoncore.NewArrayBuilder()
	for id := range byte(3) {
		batch.AppendDocument(filled(id, size/3))
	}
	b := bsoncore.NewDocumentBuilder().AppendArray("nextBatch", batch.Build())
	for _, e := range elements(t, cursor) {
		b.AppendValue(e.Key(), e.Value())
	}
	out := bsoncore.NewDocumentBuilder().AppendDocument("cursor", b.Build())
	for _, e := range elements(t, rest) {
		out.AppendValue(e.Key(), e.Value())
	}
	return out.Build()
}

func elements(t *testing.T, text string) []bsoncore.Element {
	t.Helper()
	elems, err := doc(t, text).Elements()
	if err != nil {
		t.Fatal(err)
	}
	return elems
}

// tailOf7 is the rest of the cursor 7, or of its end.
func tailOf7(ns string, end bool) string {
	id := 7
	if end {
		id = 0
	}
	return fmt.Sprintf(`{"id":{"$numberLong":"%d"},"ns":"%s"}`, id, ns)
}

// largeOf7 opens cursor 7 of a collection at its place and lets the server answer a getMore.
func largeOf7(t *testing.T, w *world, collection, place, sort string, reply bsoncore.Document) string {
	t.Helper()
	if place != collection {
		loc := w.place("v1", 1, pb.Location_OPEN)
		loc.Kinds[0].Collection = place
		w.controllers.set(loc)
		w.await(w.proxies[0])
	}
	w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":-1}`, false) })
	w.at["v1"].on("getMore", func(c command) bsoncore.Document {
		if number(c.msg.Body, "getMore") != 7 || c.collection != place {
			t.Errorf("the proxy asks by %s", json(t, c.msg.Body))
		}
		return reply
	})
	open7(t, w, collection, sort)
	return fmt.Sprintf(`{"getMore":{"$numberLong":"7"},"collection":"%s",%s}`, collection, session)
}

func open7(t *testing.T, w *world, collection, sort string) {
	t.Helper()
	if got := w.call(0, fmt.Sprintf(`{"find":"%s",%s%s}`, collection, sort, session)); cursorOf(got) != 7 {
		t.Fatal(json(t, got))
	}
}

// ask sends a command on a connection that had a reply before, and does not read the next one.
func ask(t *testing.T, w *world, command string) net.Conn {
	t.Helper()
	conn := w.dial(0)
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	call(t, conn, `{"ping":1,"$db":"admin"}`)
	if _, err := conn.Write(message.Message{ID: 1, Body: doc(t, command)}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// inHalves writes half of each reply, and the rest once the channel is closed.
func inHalves(t *testing.T, goOn <-chan struct{}) func(command, net.Conn, []byte) error {
	return func(_ command, conn net.Conn, reply []byte) error {
		if _, err := conn.Write(reply[:len(reply)/2]); err != nil {
			return err
		}
		select {
		case <-goOn:
		case <-time.After(time.Minute):
			t.Error("the client did not get the first half of the reply")
		}
		_, err := conn.Write(reply[len(reply)/2:])
		return err
	}
}

// TestPassedOn: a client reads the beginning of a large reply before its server has sent the end, and gets the same
// bytes as of a reply that is read whole.
func TestPassedOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		collection, place, ns, rest, want string
		end, renumbered                   bool
	}{
		"the same names":          {place: "orders", rest: ofMember},
		"a shorter name":          {place: "o", rest: ofMember},
		"a longer name":           {place: "orders_of_the_first_version", rest: ofMember},
		"it does not move":        {collection: "others", place: "others", rest: ofMember},
		"of a server alone":       {place: "o", rest: `{"ok":1.0}`},
		"the end":                 {place: "o", rest: ofMember, end: true},
		"after another place":     {place: "o", rest: ofMember, renumbered: true},
		"after another, the last": {place: "o", rest: ofMember, renumbered: true, end: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.collection == "" {
				tc.collection = "orders"
			}
			w := newWorld(t, worldOptions{})
			p := w.proxies[0]
			const size = 3 << 20
			more := largeOf7(t, w, tc.collection, tc.place, "", large(t, size, tailOf7("shop."+tc.place, tc.end), tc.rest))
			id := int64(7)
			if tc.renumbered {
				id = 9
				more = strings.Replace(more, `"7"`, `"9"`, 1)
				p.cursors.rename(nil, 7, 9)
			}
			goOn := make(chan struct{})
			w.at["v1"].writing(inHalves(t, goOn))
			conn := ask(t, w, more)
			h, rest, err := message.ReadHeader(conn, message.MaxMessage)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, rest)
			if _, err := io.ReadFull(conn, b[:size/4]); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			if _, err := io.ReadFull(conn, b[size/4:]); err != nil {
				t.Fatal(err)
			}
			got, err := message.Decode(h, b)
			if err != nil || h.ReplyTo != 1 {
				t.Fatal(h, err)
			}
			wantRest := `{"ok":1.0}`
			if tc.rest == ofMember {
				wantRest = `{"ok":1.0,"operationTime":{"$timestamp":{"t":5,"i":6}}}`
			}
			want := strings.Replace(tailOf7("shop."+tc.collection, tc.end), `"7"`, fmt.Sprintf(`"%d"`, id), 1)
			if !bytes.Equal(got.Body, large(t, size, want, wantRest)) {
				_, tail, _ := message.TailOf(got.Body)
				t.Errorf("another reply, which ends with %q", tail)
			}
			if _, open := p.cursors.get(nil, id); open == tc.end {
				t.Errorf("the cursor is open: %v", open)
			}
			w.allFree()
			// The connection is in order. The next reply is small.
			w.at["v1"].on("getMore", func(command) bsoncore.Document { return batchOf7(t, "nextBatch", `{"_id":1}`, true) })
			if reply := call(t, conn, more); succeeded(reply) == tc.end {
				t.Errorf("then %s", json(t, reply))
			}
		})
	}
}

// allFree waits until no message has memory.
func (w *world) allFree() {
	w.t.Helper()
	w.until("the memory of messages is free", func() bool {
		const all = 1 << 30
		if !w.proxies[0].memory.TryAcquire(all) {
			return false
		}
		w.proxies[0].memory.Release(all)
		return true
	})
}

// TestReadWhole: replies that the proxy cannot tell by their beginning, or needs to know, reach the client as well.
func TestReadWhole(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	plain := large(t, size, tailOf7("shop.o", false), ofMember)
	first := bytes.Replace(plain, []byte("nextBatch"), []byte("firsBatch"), 1)
	failed := bsoncore.NewDocumentBuilder().AppendDouble("ok", 0).AppendInt32("code", 8).AppendString("errmsg", strings.Repeat("x", size)).Build()
	for name, tc := range map[string]struct {
		sort   string
		server bsoncore.Document
		want   bsoncore.Document // nil: with the names of the application
		memory int64
	}{
		"more in the cursor":   {server: large(t, size, `{"partialResultsReturned":true,"id":{"$numberLong":"7"},"ns":"shop.o"}`, ofMember)},
		"more behind it":       {server: large(t, size, tailOf7("shop.o", false), strings.Replace(ofMember, `{"ok":1.0,`, `{"ok":1.0,"more":1,`, 1))},
		"less behind it":       {server: large(t, size, tailOf7("shop.o", false), `{"ok":1.0,"more":1}`)},
		"another name":         {server: large(t, size, tailOf7("shop.another", false), ofMember)},
		"an unknown batch":     {server: first},
		"an error":             {server: failed, want: failed},
		"in order of the keys": {sort: `"sort":{"_id":1},`, server: plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			more := largeOf7(t, w, "orders", "o", tc.sort, tc.server)
			got := w.call(0, more)
			if tc.want == nil {
				var err error
				one, ok := w.proxies[0].cursors.get(nil, 7)
				if tc.want, err = without(tc.server, "$clusterTime"); err == nil && ok {
					tc.want, err = one.names.Reply(tc.want, false)
				}
				if err != nil {
					t.Fatal(err)
				}
				if by := one.rest.by; by != nil && by.given != 4 {
					t.Errorf("the proxy knows of %d documents that the client has", by.given)
				}
			}
			if !bytes.Equal(got, tc.want) {
				t.Errorf("%d bytes, want %d", len(got), len(tc.want))
			}
			if w.proxies[0].whole.Load() {
				t.Error("the proxy took it for a reply that lies")
			}
		})
	}
}

// readReply reads a reply to its end, or the end of the connection.
func readReply(conn net.Conn) (m message.Message, err error) {
	h, rest, err := message.ReadHeader(conn, message.MaxMessage)
	if err != nil {
		return m, err
	}
	b := make([]byte, rest)
	if _, err := io.ReadFull(conn, b); err != nil {
		return m, err
	}
	return message.Decode(h, b)
}

// TestPassedOnInPart: the server breaks somewhere in a large reply. The client gets an error, or the end of its
// connection, and the cursor is gone.
func TestPassedOnInPart(t *testing.T) {
	t.Parallel()
	reply := large(t, 2<<20, tailOf7("shop.o", false), ofMember)
	whole := len(message.Message{Body: reply}.Append(nil))
	const head = 16 + message.NextBatchSize
	for name, n := range map[string]int{
		"no byte": 0, "in the header": 10, "after it": 16, "in the lengths": head - 1, "before the batch": head, "in a document": head + 1000,
		"in the middle": whole / 2, "in the cursor": whole - 150, "behind it": whole - 100, "the last byte": whole - 1,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			more := largeOf7(t, w, "orders", "o", "", reply)
			w.at["v1"].writing(func(_ command, conn net.Conn, b []byte) error {
				_, err := conn.Write(b[:n])
				return errors.Join(err, errors.New("the server breaks"))
			})
			m, err := readReply(ask(t, w, more))
			if n >= head && err == nil {
				t.Errorf("the client got a reply of %d bytes", len(m.Body))
			}
			if n < head && (err != nil || codeOf(m.Body) != codeHostUnreachable) {
				t.Errorf("the client got %v", err)
			}
			w.allFree()
			w.at["v1"].writing(nil)
			if reply := w.call(0, more); codeOf(reply) != codeCursorNotFound {
				t.Errorf("then %d bytes, want no cursor", len(reply))
			}
		})
	}
}

// TestLyingServer: the end of a reply is not what its beginning promises. The client gets no such reply, and no later
// one is passed on.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	honest := large(t, 1<<20, tailOf7("shop.o", false), ofMember)
	for name, change := range map[string]func(b []byte) []byte{
		"another time": func(b []byte) []byte { return bytes.Replace(b, []byte("$clusterTime"), []byte("$clusterTimf"), 1) },
		"another name": func(b []byte) []byte { return bytes.Replace(b, []byte("shop.o\x00"), []byte("shop.p\x00"), 1) },
		"no success": func(b []byte) []byte {
			return bytes.Replace(b, []byte("ok\x00\x00\x00\x00\x00\x00\x00\xf0"), []byte("ok\x00\x00\x00\x00\x00\x00\x00\x00"), 1)
		},
		"no end of a list": func(b []byte) []byte { b[len(b)-1-12-23-102-1-12-15-1] = 1; return b },
		"a length":         func(b []byte) []byte { b[bytes.Index(b, []byte("shop.o\x00"))-4] = 200; return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			reply := bsoncore.Document(change(slices.Clone(honest)))
			if bytes.Equal(reply, honest) {
				t.Fatal("nothing was changed")
			}
			more := largeOf7(t, w, "orders", "o", "", reply)
			if m, err := readReply(ask(t, w, more)); err == nil {
				t.Errorf("the client got a reply of %d bytes", len(m.Body))
			}
			w.allFree()
			if !w.proxies[0].whole.Load() {
				t.Error("the proxy goes on passing replies on")
			}
			w.at["v1"].on("getMore", func(command) bsoncore.Document { return honest })
			if got := w.call(0, more); codeOf(got) != codeCursorNotFound {
				t.Errorf("then %d bytes, want no cursor", len(got))
			}
			open7(t, w, "orders", "")
			if docs, err := batchOf(w.call(0, more)); err != nil || len(docs) != 3 {
				t.Errorf("then %d documents, %v", len(docs), err)
			}
		})
	}
}

// TestSlowClientOfALargeReply: a client does not read its reply. A hold reads the rest of the cursor all the same, and
// the client gets everything later.
func TestSlowClientOfALargeReply(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	secure := &tls.Config{Certificates: certified.TLS.Certificates, RootCAs: trusted, ServerName: "example.com"}
	const size = 40 << 20 // more than the buffers of the system take
	reply := large(t, size, tailOf7("shop.o", false), ofMember)
	for name, cfg := range map[string]*tls.Config{"plain": nil, "TLS": secure} {
		t.Run(name, func(t *testing.T) {
			o := worldOptions{grace: time.Minute}
			w := makeWorld(t, o)
			w.tls = cfg
			w.start(o)
			more := largeOf7(t, w, "orders", "o", "", reply)
			sent := make(chan error, 1)
			w.at["v1"].writing(func(_ command, conn net.Conn, b []byte) error {
				w.at["v1"].writing(nil)
				w.at["v1"].on("getMore", func(command) bsoncore.Document { return batchOf7(t, "nextBatch", `{"_id":9}`, true) })
				_, err := conn.Write(b)
				sent <- err
				return err
			})
			conn := ask(t, w, more)
			hold := w.place("v1", 1, pb.Location_HOLD)
			select {
			case err := <-sent: // all, although the client has read nothing
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the server waits for the client")
			}
			hold.Kinds[0].Collection = "o"
			w.controllers.set(hold)
			<-w.controllers.acks
			w.until("the reply counts", func() bool {
				const all = 1 << 30
				free := w.proxies[0].memory.TryAcquire(all)
				if free {
					w.proxies[0].memory.Release(all)
				}
				return !free
			})
			w.open("v2", 2)
			w.await(w.proxies[0])
			m, err := readReply(conn)
			if err != nil {
				t.Fatal(err)
			}
			if want := large(t, size, tailOf7("shop.orders", false), `{"ok":1.0,"operationTime":{"$timestamp":{"t":5,"i":6}}}`); !bytes.Equal(m.Body, want) {
				t.Errorf("%d bytes, want %d, or others", len(m.Body), len(want))
			}
			if got := call(t, conn, more); !strings.Contains(json(t, got), "9") || cursorOf(got) != 0 {
				t.Errorf("then %s", json(t, got))
			}
			w.allFree()
		})
	}
}

// TestLargeReplyToAnother: the server answers with the data of another request. The client gets none of it.
func TestLargeReplyToAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	more := largeOf7(t, w, "orders", "o", "", large(t, 1<<20, tailOf7("shop.o", false), ofMember))
	w.at["v1"].writing(func(_ command, conn net.Conn, b []byte) error {
		binary.LittleEndian.PutUint32(b[8:], 1<<30)
		_, err := conn.Write(b)
		return err
	})
	if got := w.call(0, more); codeOf(got) != codeHostUnreachable {
		t.Errorf("%d bytes", len(got))
	}
}

// TestClientGoneFromALargeReply: a client ends its connection within its reply. Nobody else notices, and the memory is
// free.
func TestClientGoneFromALargeReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	more := largeOf7(t, w, "orders", "o", "", large(t, 3<<20, tailOf7("shop.o", false), ofMember))
	goOn := make(chan struct{})
	w.at["v1"].writing(inHalves(t, goOn))
	conn := ask(t, w, more)
	if _, err := io.ReadFull(conn, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	w.allFree()
	ping(t, dial(t, w.addresses[0]))
	open7(t, w, "orders", "")
	if docs, err := batchOf(w.call(0, more)); err != nil || len(docs) != 3 {
		t.Errorf("%d documents, %v", len(docs), err)
	}
}
