package app

import (
	"math"
	"testing"

	"dbcontroller.dev/internal/base/limits"
)

// TestMemoryOfRequests: a server takes half of its process's memory for requests, within bounds.
func TestMemoryOfRequests(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int64{
		math.MaxInt64: limits.ServerRequestsBytes, // no GOMEMLIMIT
		4 << 30:       limits.ServerRequestsBytes,
		1 << 30:       512 << 20,
		600 << 20:     300 << 20,
		256 << 20:     128 << 20,
		1:             limits.LeastRequestsBytes,
	} {
		if got := requestsBytes(limit); got != want {
			t.Errorf("GOMEMLIMIT=%d: %d MiB, want %d", limit, got>>20, want>>20)
		}
	}
}
