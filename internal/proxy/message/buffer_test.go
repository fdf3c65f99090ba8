package message_test

import (
	"testing"

	"dbcontroller.dev/internal/proxy/message"
)

// TestBuffer: a buffer has the size that was asked for, whichever buffers were used before it.
func TestBuffer(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 10, 1 << 20, 5 << 20, 2 << 20, 17 << 20, message.MaxMessage, 1 << 20} {
		b := message.Buffer(size)
		if len(b) != size {
			t.Errorf("%d bytes, want %d", len(b), size)
		}
		message.Reuse(b[min(size, 5):]) // a body begins after a few bytes
	}
}
