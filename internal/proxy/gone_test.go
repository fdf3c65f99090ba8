package proxy

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

// ending is a connection that reports when the proxy has noticed its end.
type ending struct {
	net.Conn
	once    sync.Once
	noticed chan struct{}
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if err == io.EOF { //nolint:errorlint // a connection returns it as it is
		e.once.Do(func() { close(e.noticed) })
	}
	return n, err
}

// client connects to a proxy without its listener.
func (w *world) client() (net.Conn, *ending) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it has served its purpose
	outside := dial(w.t, l.Addr().String())
	inside, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	e := &ending{Conn: inside, noticed: make(chan struct{})}
	w.proxies[0].g.Go(func() { w.proxies[0].serve(e) })
	return outside, e
}

// TestClientGone: a client is gone while a server executes its write. The proxy counts the write until the
// server has answered, so no hold is acknowledged before.
func TestClientGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	began, goOn := make(chan struct{}), make(chan struct{})
	w.at["v1"].on("delete", func(command) bsoncore.Document {
		close(began)
		<-goOn
		return doc(t, `{"n":1,"ok":1.0}`)
	})
	conn, e := w.client()
	if _, err := conn.Write(message.Message{ID: 1, Body: doc(t, `{"delete":"orders","deletes":[{"q":{},"limit":0}],`+session+`}`)}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-e.noticed
	w.hold("v1", 1)
	// The proxy looks again and again whether it can acknowledge.
	const looks = 3
	w.until("the proxy waits with a hold", func() bool { return w.controllers.polled(w.revision.Load()) >= looks || len(w.controllers.acks) > 0 })
	if len(w.controllers.acks) > 0 {
		t.Error("a hold was acknowledged while a write was in flight")
	}
	close(goOn)
	if t.Failed() {
		return
	}
	<-w.controllers.acks
}

// TestLastWords: a client sends a write without waiting for an answer, and ends. The write is made, also if
// a switch holds it.
func TestLastWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.hold("v1", 1)
	w.await(w.proxies[0])
	conn, e := w.client()
	m := message.Message{ID: 1, Flags: message.MoreToCome, Body: doc(t, `{"insert":"orders","documents":[{"_id":1}],"writeConcern":{"w":0},`+session+`}`)}
	if _, err := conn.Write(m.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	<-e.noticed
	w.open("v2", 2)
	w.until("the write", func() bool { return len(w.at["v2"].calls("insert")) == 1 })
}

// TestClosesAfterCommands: a proxy that ends lets commands end first, and takes no further ones.
func TestClosesAfterCommands(t *testing.T) {
	t.Parallel()
	w := makeWorld(t, worldOptions{})
	p, err := New(t.Context(), w.config(worldOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, closed := make(chan error, 1), make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	w.at["v1"].on("update", func(command) bsoncore.Document {
		go func() { closed <- p.Close(context.WithoutCancel(t.Context())) }()
		<-p.closing.Done()
		return doc(t, `{"n":1,"nModified":1,"ok":1.0}`)
	})
	conn, idle := dial(t, l.Addr().String()), dial(t, l.Addr().String())
	if got := call(t, conn, increment(1)); number(got, "n") != 1 {
		t.Error("a write was cut off")
	}
	for _, c := range []net.Conn{conn, idle} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection is open")
		}
	}
	for _, end := range []chan error{served, closed} {
		if err := <-end; !ended(err) {
			t.Error(err)
		}
	}
}

// TestReaderGone: a client is gone while a server executes its read. The proxy does not wait for the answer.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	began, goOn := make(chan struct{}), make(chan struct{})
	w.at["v1"].on("count", func(command) bsoncore.Document {
		close(began)
		<-goOn
		return doc(t, `{"n":1,"ok":1.0}`)
	})
	defer close(goOn)
	conn, _ := w.client()
	if _, err := conn.Write(message.Message{ID: 1, Body: doc(t, `{"count":"orders",`+session+`}`)}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	<-began
	p := w.proxies[0]
	if n := p.departure.running.Load(); n != 1 {
		t.Errorf("%d commands run, want 1", n)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	w.until("the read ends", func() bool { return p.departure.running.Load() == 0 })
}
