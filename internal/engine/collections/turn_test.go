package collections

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestTurn: one at a time has it, and nobody waits for longer than his context lasts.
func TestTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var free turn
		if err := free.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := free.take(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v while somebody has it", err)
		}
		has, most := 0, 0
		done := make(chan error)
		for range 3 {
			go func() {
				err := free.take(t.Context())
				if err == nil {
					has++
					most = max(most, has)
					has--
					free.give()
				}
				done <- err
			}()
		}
		synctest.Wait()
		if most != 0 {
			t.Error("somebody did not wait")
		}
		free.give()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if most != 1 {
			t.Errorf("%d had it at a time", most)
		}
	})
}
