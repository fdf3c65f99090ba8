package regions_test

import (
	"net"
	"sync"
	"testing"
)

// line is the network from one region to the servers of another. It can be cut: no byte passes, and no
// side learns of it. When it heals, all of its connections end, as the network has forgotten them.
type line struct {
	l  net.Listener
	to []string // the first one that answers

	mu    sync.Mutex
	conns map[net.Conn]bool
	cut   chan struct{} // closed when the line heals; nil: it works
	age   int           // number of times it healed
	work  sync.WaitGroup
}

// newLine returns a line to the addresses of servers.
func newLine(t *testing.T, to ...string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &line{l: listener, to: to, conns: map[net.Conn]bool{}}
	n.work.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			n.work.Go(func() { n.serve(in) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		n.heal()
		n.work.Wait()
	})
	return n
}

func (n *line) addr() string { return n.l.Addr().String() }

// serve copies bytes of one connection both ways until one side ends, or the line heals.
func (n *line) serve(in net.Conn) {
	age := n.add(in)
	defer n.end(in)
	if !n.passes(age) {
		return
	}
	for _, to := range n.to {
		out, err := net.Dial("tcp", to)
		if err != nil {
			continue // that server is down
		}
		n.add(out)
		var other sync.WaitGroup
		other.Go(func() { n.pump(in, out, age) })
		n.pump(out, in, age)
		other.Wait()
		return
	}
}

func (n *line) pump(to, from net.Conn, age int) {
	defer n.end(to)
	defer n.end(from)
	buf := make([]byte, 32<<10)
	for {
		read, err := from.Read(buf)
		if err != nil || !n.passes(age) {
			return
		}
		if _, err := to.Write(buf[:read]); err != nil {
			return
		}
	}
}

// passes waits until the line is not cut. It reports whether the line did not heal since age.
func (n *line) passes(age int) bool {
	for {
		n.mu.Lock()
		cut, now := n.cut, n.age
		n.mu.Unlock()
		if cut == nil {
			return now == age
		}
		<-cut
	}
}

func (n *line) add(c net.Conn) (age int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = true
	return n.age
}

func (n *line) end(c net.Conn) {
	_ = c.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// sever cuts the line.
func (n *line) sever() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut == nil {
		n.cut = make(chan struct{})
	}
}

// heal ends a cut, and all connections.
func (n *line) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.age++
	if n.cut != nil {
		close(n.cut)
		n.cut = nil
	}
	for c := range n.conns {
		_ = c.Close()
	}
}
