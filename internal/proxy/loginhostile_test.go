package proxy

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

// TestHostileLogins: commands of a login that come out of order, twice or between each other never log in, and
// the connection stays usable. Large messages of strangers end it.
func TestHostileLogins(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{}, "ann")
	driver, err := scram.SHA256.NewClientUnprepped("ann", "ann-proxy", "")
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, w.addresses[0])
	start := func() (proof string) {
		t.Helper()
		c := driver.NewConversation()
		first, _ := c.Step("")
		reply := call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","options":{"skipEmptyExchange":true},"payload":`+blob(first)+`,"$db":"admin"}`)
		payload, err := payloadOf(reply)
		if err != nil {
			t.Fatalf("%s: %v", reply, err)
		}
		proof, err = c.Step(string(payload))
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	goOn := func(id int, proof string) bsoncore.Document {
		return call(t, conn, fmt.Sprintf(`{"saslContinue":1,"conversationId":%d,"payload":%s,"$db":"admin"}`, id, blob(proof)))
	}
	check := func(what string, reply bsoncore.Document, code int32) {
		t.Helper()
		if codeOf(reply) != code {
			t.Errorf("%s: %s, want code %d", what, reply, code)
		}
		if reply := call(t, conn, `{"find":"orders","$db":"shop"}`); codeOf(reply) != codeUnauthorized {
			t.Errorf("%s: logged in", what)
		}
	}
	check("without a start", goOn(1, "c=biws,r=abc,p=YWJj"), codeProtocol)
	check("another id", goOn(2, start()), codeProtocol)
	check("after another id", goOn(1, "c=biws,r=abc,p=YWJj"), codeProtocol)
	early := start()
	start()
	check("the proof of the conversation before", goOn(1, early), codeAuthenticationFailed)
	check("once more", goOn(1, early), codeProtocol)
	// A start within hello ends the one under way.
	early = start()
	call(t, conn, `{"hello":1,"speculativeAuthenticate":{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":`+blob("n,,n=ann,r=abc")+`,"db":"admin"},"$db":"admin"}`)
	check("between another one", goOn(1, early), codeAuthenticationFailed)
	early = start()
	check("a start that is refused", call(t, conn, `{"saslStart":1,"mechanism":"PLAIN","payload":`+blob("x")+`,"$db":"$external"}`), codeMechanismUnavailable)
	check("after a start that was refused", goOn(1, early), codeProtocol)
	for _, payload := range []string{`"!"`, `7`, `null`, `{}`, `[]`} {
		check(payload, call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":`+payload+`,"$db":"admin"}`), codeProtocol)
	}
	check("no payload", call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","$db":"admin"}`), codeProtocol)
	check("no mechanism", call(t, conn, `{"saslStart":1,"payload":`+blob("x")+`,"$db":"admin"}`), codeMechanismUnavailable)
	check("a long payload", call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":`+blob("n,,n=ann,r="+strings.Repeat("x", 5000))+`,"$db":"admin"}`), codeAuthenticationFailed)
	// hello answers although its login is none.
	for _, inner := range []string{`{}`, `7`, `{"saslStart":1}`, `{"authenticate":1,"mechanism":"MONGODB-X509"}`, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":` + blob("rubbish") + `,"db":"admin"}`} {
		reply := call(t, conn, `{"hello":1,"speculativeAuthenticate":`+inner+`,"$db":"admin"}`)
		if _, err := reply.LookupErr("speculativeAuthenticate"); !succeeded(reply) || err == nil {
			t.Errorf("%s: %s", inner, reply)
		}
	}
	// The right proof still logs in, and a replay of it does not.
	proof := start()
	if reply := goOn(1, proof); !succeeded(reply) {
		t.Error(reply)
	}
	if reply := goOn(1, proof); codeOf(reply) != codeProtocol {
		t.Error(reply)
	}
	if reply := call(t, conn, `{"find":"orders","$db":"shop"}`); !succeeded(reply) {
		t.Errorf("not logged in: %s", reply)
	}
	large := bsoncore.NewDocumentBuilder().AppendInt32("ping", 1).AppendString("x", strings.Repeat("x", smallMessage)).AppendString("$db", "admin").Build()
	if reply := send(t, conn, message.Message{ID: 1, Body: large}); !succeeded(reply) {
		t.Errorf("a large message of a user: %s", reply)
	}
	stranger := dial(t, w.addresses[0])
	if _, err := stranger.Write(message.Message{ID: 1, Body: large}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, stranger); n > 0 {
		t.Errorf("%d bytes, %v after a large message of a stranger", n, err)
	}
}

// TestFailedLoginsAreLogged: the log names the user as one line, without a password.
func TestFailedLoginsAreLogged(t *testing.T) {
	t.Parallel()
	var text lockedBuffer
	w := newWorldOf(t, worldOptions{log: slog.New(slog.NewTextHandler(&text, nil))}, "ann")
	name := "eve\n\x1b[2J" + strings.Repeat("x", 200)
	if reply := w.enter(dial(t, w.addresses[0]), name, "hunter2"); codeOf(reply) != codeAuthenticationFailed {
		t.Error(reply)
	}
	got := text.String()
	if strings.Contains(got, "hunter2") || strings.Contains(got, "\x1b") || strings.Contains(got, strings.Repeat("x", 150)) || !strings.Contains(got, "eve") || strings.Count(got, "a login failed") != 1 {
		t.Errorf("the log is %s", got)
	}
}

// TestLinesOfStrangers: a flood of failed logins has few lines, and the next one tells how many were left out.
func TestLinesOfStrangers(t *testing.T) {
	t.Parallel()
	var l lines
	now := time.Unix(1000, 0)
	for i := range 3 * mostLines {
		if left, ok := l.next(now); ok != (i < mostLines) || left != 0 {
			t.Errorf("line %d: %t, %d left out", i, ok, left)
		}
	}
	if left, ok := l.next(now.Add(time.Second)); !ok || left != 2*mostLines {
		t.Errorf("%t, %d left out", ok, left)
	}
	if left, ok := l.next(now.Add(time.Second)); !ok || left != 0 {
		t.Errorf("%t, %d left out", ok, left)
	}
}

// lockedBuffer may be written by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
