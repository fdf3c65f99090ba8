package collections

import (
	"context"
	"sync"
)

// turn is a lock that is held over commands of a database, and so is waited for only as long
// as a context lasts. The zero value is free.
type turn struct {
	mu   sync.Mutex
	held chan struct{} // closed when it is given back; nil: it is free
}

// take waits until the turn is the caller's, who gives it back.
func (t *turn) take(ctx context.Context) error {
	for {
		t.mu.Lock()
		held := t.held
		if held == nil {
			t.held = make(chan struct{})
		}
		t.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-held:
		}
	}
}

func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.held)
	t.held = nil
}
