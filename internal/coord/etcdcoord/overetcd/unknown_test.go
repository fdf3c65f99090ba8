package overetcd_test

import (
	"context"
	"errors"
	"testing"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// A commit whose answer is lost with the connection has an unknown outcome, happened
// once, and is not sent again.
func TestConnectionBreaksAfterSending(t *testing.T) {
	at := "http://" + startPlain(t)
	p := startProxy(t, at)
	ctx := t.Context()
	direct := open(t, etcdcoord.Config{Endpoints: []string{at}})
	s := open(t, etcdcoord.Config{Endpoints: []string{"http://" + p.listener.Addr().String()}})
	_, _, w, err := direct.Follow(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	p.setDeaf(true)
	result := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, []coord.Condition{{Key: "k"}}, []coord.Op{{Key: "k"}})
		result <- err
	}()
	if _, err := w.Next(ctx); err != nil { // it happened
		t.Fatal(err)
	}
	p.setDeaf(false)
	p.cut()
	if err := <-result; !errors.Is(err, coord.ErrUnknown) || errors.Is(err, coord.ErrConflict) {
		t.Fatalf("Commit = %v, want ErrUnknown", err)
	}
	// The store works again, and reading resolves it.
	if _, err := s.Get(ctx, "k"); err != nil {
		t.Fatal(err)
	}
}

// The same with the context that ends while the answer is on its way.
func TestContextEndsAfterSending(t *testing.T) {
	at := "http://" + startPlain(t)
	p := startProxy(t, at)
	direct := open(t, etcdcoord.Config{Endpoints: []string{at}})
	s := open(t, etcdcoord.Config{Endpoints: []string{"http://" + p.listener.Addr().String()}})
	_, _, w, err := direct.Follow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p.setDeaf(true)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, []coord.Condition{{Key: "k"}}, []coord.Op{{Key: "k"}})
		result <- err
	}()
	_, err = w.Next(t.Context())
	cancel()
	if got := <-result; !errors.Is(got, coord.ErrUnknown) || !errors.Is(got, context.Canceled) {
		t.Fatalf("Commit = %v, want ErrUnknown and the context's error", got)
	}
	if err != nil {
		t.Fatalf("it did not go through: %v", err)
	}
}
