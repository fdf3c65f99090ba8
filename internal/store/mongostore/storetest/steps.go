package storetest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Steps is a network that delivers in steps: what is sent during a step arrives at its end. It counts
// the steps, which are the round trips that follow one another.
type Steps struct {
	Length time.Duration

	mu    sync.Mutex
	count int
	step  chan struct{} // closed at the end of the step; nil: nothing is under way
}

// DialContext opens a connection over the network.
func (s *Steps) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return &steppedConn{c, s}, err
}

type steppedConn struct {
	net.Conn
	steps *Steps
}

func (c *steppedConn) Write(b []byte) (int, error) {
	// The driver looks after its connections beside the commands.
	if !bytes.Contains(b, []byte("hello\x00")) && !bytes.Contains(b, []byte("isMaster\x00")) {
		<-c.steps.end()
	}
	return c.Conn.Write(b)
}

// end returns the end of the present step. It begins one if there is none.
func (s *Steps) end() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step == nil {
		s.step = make(chan struct{})
		s.count++
		time.AfterFunc(s.Length, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			close(s.step)
			s.step = nil
		})
	}
	return s.step
}

// Of returns the number of steps of a call.
func (s *Steps) Of(t testing.TB, do func() error) int {
	t.Helper()
	s.mu.Lock()
	before := s.count
	s.mu.Unlock()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count - before
}
