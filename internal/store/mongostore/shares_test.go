package mongostore

import (
	"testing"
	"time"
)

// TestShares of a time between two looks.
func TestShares(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	last := sample{at: at, server: "a1", cpu: 5_000_000, busy: [2]int64{100, 100}}
	now := sample{at: at.Add(2 * time.Second), server: "a1", cpu: 8_000_000, busy: [2]int64{100, 32_000_100}}
	if cpu, queue := now.since(last, 2, [2]int64{4, 4}); cpu != 0.75 || queue != 4 {
		t.Errorf("cpu %g, queue %g", cpu, queue)
	}
	now.server = "b1" // after a failover
	if cpu, queue := now.since(last, 2, [2]int64{4, 4}); cpu != 0 || queue != 0 {
		t.Errorf("of another server: cpu %g, queue %g", cpu, queue)
	}
	if cpu, queue := now.since(sample{}, 2, [2]int64{4, 4}); cpu != 0 || queue != 0 {
		t.Errorf("of nothing: cpu %g, queue %g", cpu, queue)
	}
}
