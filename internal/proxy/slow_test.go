package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

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
	in, err := p.receive(t.Context(), &peer{conn: link}, link)
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
			if _, err := p.receive(ctx, &peer{conn: patient{}}, io.MultiReader(bytes.NewReader(header), bodies)); err == nil {
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
