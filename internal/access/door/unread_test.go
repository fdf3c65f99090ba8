package door_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"dbcontroller.dev/internal/access/door"
)

// TestAnswersThatNobodyReads: a client that asks again and again and never reads is given up, also if
// the answers are so short that the server sends them after the handler has returned, and if the client
// is not let in.
func TestAnswersThatNobodyReads(t *testing.T) {
	t.Parallel()
	d := open(t, door.Config{WriteTime: 100 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 1500)) // the server sends parts from 2 KiB
	})
	for what, host := range map[string]string{"let in": "127.0.0.1", "refused": "evil.example.com"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", d.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// Many requests fill the buffers of both sides. Once the server waits for room in them, it
			// reads no more requests, so that this waits as well.
			requests := strings.Repeat("GET /x HTTP/1.1\r\nHost: "+host+"\r\n\r\n", 100)
			for err == nil {
				_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Minute))
				_, err = io.WriteString(conn, requests)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
		})
	}
}

// TestAnswersWithoutAWindow: over HTTP/2, a client that gives the server no window for the answer is
// given up as well.
func TestAnswersWithoutAWindow(t *testing.T) {
	t.Parallel()
	d := open(t, door.Config{WriteTime: 100 * time.Millisecond, Unencrypted2: true}, echo)
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	var head bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "127.0.0.1"}, {Name: ":path", Value: "/x"}} {
		_ = fields.WriteField(f) // a buffer takes everything
	}
	frames := http2.NewFramer(conn, conn)
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}),
		frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}))
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			t.Fatalf("the stream is still open: %v", err)
		}
		if f.Header().StreamID == 1 && f.Header().Type == http2.FrameRSTStream {
			return
		}
	}
}
