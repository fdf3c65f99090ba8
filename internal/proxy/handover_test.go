package proxy

import (
	"fmt"
	"io"
	"net"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

// stateOf is the state of a proxy in the reply to a hello.
func stateOf(t *testing.T, hello bsoncore.Document) bsoncore.Document {
	t.Helper()
	v, err := hello.LookupErr("topologyVersion")
	state, ok := v.DocumentOK()
	if err != nil || !ok {
		t.Fatalf("%s has no topologyVersion", json(t, hello))
	}
	return state
}

// waitingHello is a hello that waits until the state of a proxy is another one.
func waitingHello(t *testing.T, state bsoncore.Document) string {
	t.Helper()
	return `{"hello":1,"maxAwaitTimeMS":60000,"topologyVersion":` + json(t, state) + `,"$db":"admin"}`
}

const hello = `{"hello":1,"$db":"admin"}`

// TestHandOver: a proxy that ends serves the transaction that is open, and only then reports its end, to the hello
// that waits for it. Commands are served to the end.
func TestHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.proxies[0]
	w.at["v1"].on("insert", ok(t))
	w.at["v1"].on("commitTransaction", ok(t))
	w.call(0, insertFirst)
	monitor := dial(t, w.addresses[0])
	state := stateOf(t, call(t, monitor, hello))
	heard := make(chan bsoncore.Document, 1)
	go func() { heard <- call(t, monitor, waitingHello(t, state)) }()
	left := make(chan struct{})
	go func() {
		defer close(left)
		p.HandOver(t.Context())
	}()
	w.until("the proxy begins to end", func() bool { return p.departure.at() > serving })
	if err := p.Ready(); err == nil {
		t.Error("it is ready, though it ends")
	}
	if got := w.call(0, commit); !succeeded(got) {
		t.Errorf("a commit: %s", json(t, got))
	}
	if n := len(w.at["v1"].calls("abortTransaction")); n > 0 {
		t.Errorf("%d transactions were aborted", n)
	}
	got := <-heard
	wants(t, got, codeShutdown)
	if counter := number(stateOf(t, got), "counter"); counter <= number(state, "counter") {
		t.Errorf("the state %d after %s: a driver ignores it", counter, json(t, state))
	}
	wants(t, w.call(0, hello), codeShutdown)
	if got := w.call(0, `{"insert":"orders","documents":[{"_id":2}],`+session+`}`); !succeeded(got) {
		t.Errorf("a write: %s", json(t, got))
	}
	if got := w.call(0, insertFirst); codeOf(got) != codeShutdown || !labelled(got, labelTransient) {
		t.Errorf("a new transaction: %s", json(t, got))
	}
	<-left
}

// TestHandOverAborts: a transaction that does not end in time is aborted, with the error that makes a driver run it
// again elsewhere.
func TestHandOverAborts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	p := w.proxies[0]
	w.at["v1"].on("insert", ok(t))
	w.at["v1"].on("abortTransaction", ok(t))
	w.call(0, insertFirst)
	left := make(chan struct{})
	go func() {
		defer close(left)
		p.HandOver(t.Context())
	}()
	w.until("the proxy refuses", func() bool { return p.departure.at() >= refusing })
	got := w.call(0, `{"insert":"orders","documents":[{"_id":2}],`+inTransaction+`}`)
	if !labelled(got, labelTransient) {
		t.Errorf("%s, want the label that makes a driver run it again", json(t, got))
	}
	if n := len(w.at["v1"].calls("abortTransaction")); n != 1 {
		t.Errorf("%d aborts, want 1", n)
	}
	if got := w.call(0, commit); succeeded(got) {
		t.Errorf("a commit after the abort: %s", json(t, got))
	}
	<-left
}

// TestHelloWaits: a hello that waits is answered when its time is over, and at once if it knows another state.
func TestHelloWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{proxies: 2})
	state := stateOf(t, w.call(0, hello))
	for name, body := range map[string]string{
		"its time is over":   fmt.Sprintf(`{"hello":1,"maxAwaitTimeMS":1,"topologyVersion":%s,"$db":"admin"}`, json(t, state)),
		"without a time":     fmt.Sprintf(`{"hello":1,"topologyVersion":%s,"$db":"admin"}`, json(t, state)),
		"of another process": waitingHello(t, stateOf(t, w.call(1, hello))),
	} {
		if got := w.call(0, body); !succeeded(got) {
			t.Errorf("%s: %s", name, json(t, got))
		}
	}
}

// TestHelloStreams: a driver that allows it gets one reply after another to a hello, and the end of the proxy as the
// last one.
func TestHelloStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{proxies: 2})
	p := w.proxies[0]
	state := stateOf(t, w.call(0, hello))
	for name, known := range map[string]bsoncore.Document{"this state": state, "of another process": stateOf(t, w.call(1, hello))} {
		conn := dial(t, w.addresses[0])
		body := fmt.Sprintf(`{"hello":1,"maxAwaitTimeMS":1,"topologyVersion":%s,"$db":"admin"}`, json(t, known))
		if _, err := conn.Write(message.Message{ID: 1, Flags: message.ExhaustAllowed, Body: doc(t, body)}.Append(nil)); err != nil {
			t.Fatal(err)
		}
		before := int32(1)
		for i := range 3 {
			m := next(t, conn)
			if !succeeded(m.Body) || m.Flags&message.MoreToCome == 0 || m.ReplyTo != before {
				t.Fatalf("%s: reply %d is %+v, want one of several to message %d", name, i, m, before)
			}
			before = m.ID
		}
	}
	conn := dial(t, w.addresses[0])
	if _, err := conn.Write(message.Message{ID: 1, Flags: message.ExhaustAllowed, Body: doc(t, waitingHello(t, state))}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	p.HandOver(t.Context())
	m := next(t, conn)
	if wants(t, m.Body, codeShutdown); m.Flags&message.MoreToCome != 0 {
		t.Error("further replies follow an error")
	}
}

// next reads a message of a proxy.
func next(t *testing.T, conn net.Conn) message.Message {
	t.Helper()
	h, rest, err := message.ReadHeader(conn, message.MaxMessage)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, rest)
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	m, err := message.Decode(h, b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHoldOutlastsTheProxy: a switch holds a write until the proxy ends. The client hears that nothing was written,
// and a driver repeats it elsewhere.
func TestHoldOutlastsTheProxy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body  string
		retry bool
	}{
		"retryable": {body: `{"insert":"orders","documents":[{"_id":1}],"txnNumber":{"$numberLong":"5"},` + session + `}`, retry: true},
		"plain":     {body: `{"update":"orders","updates":[{"q":{},"u":{"$set":{"a":1}},"multi":true}],` + session + `}`},
		"bulk":      {body: `{"bulkWrite":1,"ops":[{"insert":0,"document":{"_id":1}}],"nsInfo":[{"ns":"shop.orders"}],"lsid":{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}},"$db":"admin"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			p := w.proxies[0]
			w.hold("v1", 1)
			w.await(p)
			heard := make(chan bsoncore.Document, 1)
			go func() { heard <- w.call(0, tc.body) }()
			w.until("the write waits", func() bool { return p.departure.running.Load() == 1 })
			p.end()
			p.stopWaits() // as Close does when its time is nearly over
			if got := <-heard; codeOf(got) != codeShutdown || labelled(got, labelRetryable) != tc.retry {
				t.Errorf("%s", json(t, got))
			}
			for _, verb := range []string{"insert", "update", "bulkWrite"} {
				if n := len(w.at["v1"].calls(verb)); n > 0 {
					t.Errorf("%d of %s came to the server", n, verb)
				}
			}
		})
	}
}

// TestBusyCursors: a proxy that ends waits for cursors that are read, and not for change streams or those left.
func TestBusyCursors(t *testing.T) {
	t.Parallel()
	var c cursors
	c.keep(1, cursor{watches: true})
	if c.busy() {
		t.Error("a change stream has no end to wait for")
	}
	c.keep(2, cursor{})
	if !c.busy() {
		t.Error("a cursor is not waited for")
	}
	left := c.open[owned{nil, 2}]
	left.used = left.used.Add(-2 * idleCursor)
	c.open[owned{nil, 2}] = left
	if c.busy() {
		t.Error("a cursor that nobody reads is waited for")
	}
}
