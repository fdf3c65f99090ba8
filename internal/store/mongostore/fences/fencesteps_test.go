package fences_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// steps is a network that delivers in steps: what is sent during a step arrives at its end. It counts
// the steps, which are the round trips that follow one another.
type steps struct {
	length time.Duration

	mu    sync.Mutex
	count int
	step  chan struct{} // closed at the end of the step; nil: nothing is under way
}

func (s *steps) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return &steppedConn{c, s}, err
}

type steppedConn struct {
	net.Conn
	steps *steps
}

func (c *steppedConn) Write(b []byte) (int, error) {
	// The driver looks after its connections beside the commands.
	if !bytes.Contains(b, []byte("hello\x00")) && !bytes.Contains(b, []byte("isMaster\x00")) {
		<-c.steps.end()
	}
	return c.Conn.Write(b)
}

// end returns the end of the present step. It begins one if there is none.
func (s *steps) end() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step == nil {
		s.step = make(chan struct{})
		s.count++
		time.AfterFunc(s.length, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			close(s.step)
			s.step = nil
		})
	}
	return s.step
}

// of returns the number of steps of a call.
func (s *steps) of(t *testing.T, do func() error) int {
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

// TestStepsOfFarFences: while clients wait, each step costs the distance to the server. A switch seals a
// hidden collection and opens it under its own name, in four steps each. The first looks at the names.
// The second looks for index builds, and the third renames. The fourth is the mark with the proof.
// Closing the former fence takes two of them, too.
func TestStepsOfFarFences(t *testing.T) {
	const want = 4
	b := storetest.NewBench(t)
	var sealed, opened int
	// A busy machine sends late, and so in another step. Longer steps forgive that.
	for i, length := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		tok := b.Fixed(t, fmt.Sprintf("orders%d", i))
		former := record.Fence{Class: record.FenceView, Token: tok, To: record.PhysicalName(tok.Kind, 1)}
		if err := b.Fence(t.Context(), former); err != nil {
			t.Fatal(err)
		}
		far := &steps{length: length}
		ns := storetest.OpenNamespace(t, conn.Config{URI: b.URI, Database: b.Name}, far)
		seal := record.Fence{Class: record.FenceView, Token: tok, To: record.PhysicalName(tok.Kind, 2)}
		seal.Token.Name = former.To
		sealed = far.of(t, func() error { return ns.Fence(t.Context(), seal) })
		open := record.Fence{Class: record.FenceView, Token: tok, To: tok.Kind, Ends: former.To}
		open.Token.Name = seal.To
		opened = far.of(t, func() error { return ns.Fence(t.Context(), open) })
		if sealed <= want && opened <= want {
			return
		}
	}
	t.Errorf("the seal took %d steps and the opening %d, want %d", sealed, opened, want)
}
