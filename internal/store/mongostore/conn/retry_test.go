package conn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"dbcontroller.dev/record"
)

// TestTooLargeIsFinal: a read of more than its bound is refused at once.
func TestTooLargeIsFinal(t *testing.T) {
	t.Parallel()
	attempts := 0
	err := Reading(t.Context(), func() error {
		if attempts++; attempts > 1 {
			return nil // a retry would be refused again, for 15 seconds
		}
		return fmt.Errorf("read: %w", record.ErrTooLarge)
	})
	if attempts != 1 || !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

// TestRetryKeepsTheLastAnswer: a caller who gives up between two attempts still learns that
// what he asked for may have happened.
func TestRetryKeepsTheLastAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := Retry(ctx, time.Minute, func() error {
		cancel()
		return record.ErrUnknown
	})
	if !errors.Is(err, record.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want an unknown end and the end of the context", err)
	}
	refused := errors.New("refused")
	if err := Retry(t.Context(), time.Minute, func() error { return Permanent(refused) }); err != refused {
		t.Errorf("%v, want the refusal alone", err)
	}
	// What is final stays so whatever becomes of the caller, and is not final for a loop around this one.
	ending, end := context.WithCancel(t.Context())
	if err := Retry(ending, time.Minute, func() error { end(); return Permanent(refused) }); err != refused {
		t.Errorf("%v, want the refusal alone", err)
	}
	attempts := 0
	if err := Retry(t.Context(), time.Minute, func() error {
		if attempts++; attempts < 3 {
			return refused
		}
		return nil
	}); err != nil || attempts != 3 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}
