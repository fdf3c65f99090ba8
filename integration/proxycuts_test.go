package integration_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// cutEvery is the number of replies of which one is cut. A driver repeats a command once, so two cuts must not come
// one after the other.
const cutEvery = 300

// cuts cuts the connections of clients in the middle of a reply, so that the client does not know what became of its
// command.
type cuts struct {
	on            atomic.Bool
	replies, made atomic.Int64
}

// before puts itself before a proxy, and returns the address for the clients.
func (c *cuts) before(ctx context.Context, t *testing.T, proxy string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			g.Go(func() { c.serve(ctx, client, proxy) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		g.Wait()
	})
	return l.Addr().String()
}

func (c *cuts) serve(ctx context.Context, client net.Conn, proxy string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", proxy)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	for c.pass(client, server) {
	}
	_, _ = client.Close(), server.Close()
	<-sent
}

// pass passes one reply on. It returns false at the end of the connection.
func (c *cuts) pass(client io.Writer, server io.Reader) bool {
	var size [4]byte
	if _, err := io.ReadFull(server, size[:]); err != nil {
		return false
	}
	reply := make([]byte, binary.LittleEndian.Uint32(size[:]))
	copy(reply, size[:])
	if _, err := io.ReadFull(server, reply[len(size):]); err != nil {
		return false
	}
	if c.on.Load() && c.replies.Add(1)%cutEvery == 0 {
		c.made.Add(1)
		_, _ = client.Write(reply[:len(reply)/2])
		return false
	}
	_, err := client.Write(reply)
	return err == nil
}
