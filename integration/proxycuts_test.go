package integration_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cutEvery is the number of replies of which one is cut. A driver repeats a command once, so two cuts must not come
// one after the other.
const cutEvery = 300

// cuts cuts the connections of clients in the middle of a reply, so that the client does not know what became of its
// command.
type cuts struct {
	on            atomic.Bool
	replies, made atomic.Int64

	mu   sync.Mutex
	next string // proxy whose next reply to a command is cut
	// asked has the times of the commands that wait for replies.
	asked map[*relayed]time.Time
}

// relayed is a connection of a client to a proxy.
type relayed struct {
	proxy          string
	client, server net.Conn
}

func (r *relayed) close() { _, _ = r.client.Close(), r.server.Close() }

// turn cuts every cutEvery-th reply from now on, or ends that. A nil receiver cuts nothing.
func (c *cuts) turn(on bool) {
	if c != nil {
		c.on.Store(on)
	}
}

// strike cuts the next reply of a proxy to a command, and at once the connection that has waited longest for one.
func (c *cuts) strike(proxy string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = proxy
	var longest *relayed
	for r, since := range c.asked {
		if r.proxy == proxy && (longest == nil || since.Before(c.asked[longest])) {
			longest = r
		}
	}
	if longest != nil {
		c.made.Add(1)
		longest.close()
	}
}

// struck reports whether the reply of the last strike was cut.
func (c *cuts) struck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next == ""
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
	r := &relayed{proxy: proxy, client: client, server: server}
	defer r.close()
	defer context.AfterFunc(ctx, r.close)()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer r.close()
		for c.ask(r) {
		}
	}()
	for c.reply(r) {
	}
	r.close()
	<-sent
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, r)
}

// ask passes one message of the client on. It returns false at the end of the connection.
func (c *cuts) ask(r *relayed) bool {
	message, err := readMessage(r.client)
	if err != nil {
		return false
	}
	if !greets(message) {
		c.mu.Lock()
		if c.asked == nil {
			c.asked = map[*relayed]time.Time{}
		}
		c.asked[r] = time.Now()
		c.mu.Unlock()
	}
	_, err = r.server.Write(message)
	return err == nil
}

// reply passes one reply on, likewise.
func (c *cuts) reply(r *relayed) bool {
	message, err := readMessage(r.server)
	if err != nil {
		return false
	}
	if c.cuts(r) {
		c.made.Add(1)
		_, _ = r.client.Write(message[:len(message)/2])
		return false
	}
	_, err = r.client.Write(message)
	return err == nil
}

// cuts reports whether the reply that has come is cut.
func (c *cuts) cuts(r *relayed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, asked := c.asked[r]
	delete(c.asked, r)
	if asked && c.next == r.proxy {
		c.next = ""
		return true
	}
	return c.on.Load() && c.replies.Add(1)%cutEvery == 0
}

func readMessage(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.LittleEndian.Uint32(size[:]))
	copy(message, size[:])
	_, err := io.ReadFull(from, message[len(size):])
	return message, err
}

// greets reports whether a message is a hello. Those of monitors wait for their replies for long.
func greets(message []byte) bool {
	const opMsg, name = 2013, 26 // in a message whose first section is the body
	if len(message) < name || binary.LittleEndian.Uint32(message[12:]) != opMsg {
		return true // the handshake of old
	}
	command, _, _ := bytes.Cut(message[name:], []byte{0})
	return bytes.EqualFold(command, []byte("hello")) || bytes.EqualFold(command, []byte("isMaster"))
}
