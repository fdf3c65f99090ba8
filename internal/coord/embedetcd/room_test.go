package embedetcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// TestMakesRoom: a server whose quota was reached refuses writes in so many words, and
// makes room by itself as long as what is kept fits.
func TestMakesRoom(t *testing.T) {
	const quota = 8 << 20
	s, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: t.TempDir(), Quota: quota})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	c, err := etcdcoord.Open(t.Context(), etcdcoord.Config{Endpoints: s.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	value := bytes.Repeat([]byte("x"), 1<<20)
	write := func() error {
		_, err := c.Commit(t.Context(), nil, []coord.Op{{Key: "always the same", Value: value}})
		return err
	}
	for i := 0; err == nil; i++ {
		if i > 4*quota/len(value) {
			t.Fatal("the quota is never reached")
		}
		err = write()
	}
	if !errors.Is(err, coord.ErrNoSpace) || !strings.Contains(err.Error(), "alarm disarm") {
		t.Errorf("got %v, want coord.ErrNoSpace and what to do", err)
	}
	deadline := time.NewTimer(3 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = write(); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("no room was made: %v", err)
		}
	}
	if kv, err := c.Get(t.Context(), "always the same"); err != nil || !bytes.Equal(kv.Value, value) {
		t.Error(fmt.Errorf("after that: %d bytes, %w", len(kv.Value), err))
	}
}
