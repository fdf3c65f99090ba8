package proxy

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

// lockedLog is a log that goroutines may write while a test reads it.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// faulty is a connection whose second read panics with what a client has sent.
type faulty struct {
	net.Conn
	reads atomic.Int32
}

const secret = "the-secret-of-a-customer"

func (f *faulty) Read(b []byte) (int, error) {
	if f.reads.Add(1) > 1 {
		panic("cannot read " + secret)
	}
	return f.Conn.Read(b)
}

// TestFaults: a panic ends the connection, the cursor, the question or the transaction that it belongs to. The proxy
// goes on, counts it, and logs it once with the stack and without values of clients.
func TestFaults(t *testing.T) {
	t.Parallel()
	out := &lockedLog{}
	w := newWorld(t, worldOptions{log: slog.New(slog.NewTextHandler(out, nil))})
	p, d := w.proxies[0], w.proxies[0].deployed[0]
	faults := func() float64 { return values(t, p)["dbcontroller_proxy_faults_total"] }

	// The reader of a connection.
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		outside := dial(t, l.Addr().String())
		inside, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		p.begin(&faulty{Conn: inside})
		if _, err := outside.Write(message.Message{ID: 1, Body: doc(t, `{"ping":1,"$db":"admin"}`)}.Append(nil)); err != nil {
			t.Fatal(err)
		}
		for b := make([]byte, 512); err == nil; {
			_, err = outside.Read(b) // until the proxy ends the connection
		}
	}
	w.until("both faults count, and one is logged", func() bool { return faults() == 2 && out.String() != "" })
	text := out.String()
	if n := strings.Count(text, "a fault of the proxy"); n != 1 || !strings.Contains(text, "faults_test.go") {
		t.Errorf("it was logged %d times, want once with the stack:\n%s", n, text)
	}
	if strings.Contains(text, secret) {
		t.Errorf("the log has a value of a client:\n%s", text)
	}

	// A question to the controllers.
	if _, err := p.ask(t.Context(), &deployed{}); err == nil {
		t.Error("a question without controllers has an answer")
	}
	if got := faults(); got != 3 {
		t.Errorf("%v faults, want 3", got)
	}

	// A cursor that is read ahead, and the guard of a transaction, when a switch begins.
	r := &rest{cursor: cursor{moves: d, epoch: 1}, release: p.ahead.Release, faults: &p.faults, reading: make(chan struct{}, 1)}
	p.cursors.keep(7, cursor{moves: d, epoch: 1, rest: r})
	var aborts atomic.Int32
	_, _, err := d.enter(t.Context(), p.life, 1, func() bool { return false }, func() {
		if aborts.Add(1) == 1 {
			panic(secret)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.hold("v1", 1)
	<-w.controllers.acks
	w.until("these faults count", func() bool { return faults() == 5 })
	w.until("the transaction is aborted", func() bool { return aborts.Load() == 2 })
	if !r.broken() {
		t.Error("documents of the cursor may be lost, and its client does not hear of it")
	}
	if !p.ahead.TryAcquire(mostAheadOfAll) {
		t.Error("the memory of the cursor was not given back")
	}
	p.ahead.Release(mostAheadOfAll)
	w.open("v1", 1)
	w.at["v1"].on("insert", ok(t))
	if got := w.call(0, `{"insert":"orders","documents":[{"_id":1}],`+session+`}`); !succeeded(got) {
		t.Errorf("afterwards: %s", json(t, got))
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("the log has a value of a client:\n%s", out.String())
	}
}

// TestFaultBeforeATransaction: a panic before a transaction has begun is its error.
func TestFaultBeforeATransaction(t *testing.T) {
	t.Parallel()
	d := &deployed{faults: &faults{}}
	if _, _, err := d.enter(context.Background(), t.Context(), 1, func() bool { return false }, func() { t.Error("an abort") }); err == nil {
		t.Error("it has begun")
	}
}

// TestFaultOfACommand: a panic in a command ends its connection.
func TestFaultOfACommand(t *testing.T) {
	t.Parallel()
	p := &Proxy{log: discard}
	if got := p.safely(t.Context(), &peer{}, command{verb: "find", collection: "orders", msg: message.Message{Body: bsoncore.NewDocumentBuilder().Build()}}); got != nil {
		t.Errorf("%v", got)
	}
	if n := p.faults.count(); n != 1 {
		t.Errorf("%d faults, want 1", n)
	}
}
