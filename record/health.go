package record

import (
	"context"
	"time"
)

// Health is how a database bears its load, measured just now. Shares are of what there is,
// from 0 to 1.
type Health struct {
	CPU        float64       // of the database's processors, over the time since the last look
	Queue      float64       // of the operations that may run at once, those that run or wait; above 1: some wait
	CacheUsed  float64       // of the cache
	CacheDirty float64       // of the cache, what is still to be written
	Lag        time.Duration // of the member of a majority that is furthest behind
}

// Load is the share of the scarcest of what bulk work takes from clients: processors and
// places to run.
func (h Health) Load() float64 { return max(h.CPU, h.Queue) }

// Monitor measures a database.
type Monitor interface {
	// Health measures. An error holds why it cannot, a missing privilege for one; then
	// nothing is known, and bulk work has to wait.
	Health(ctx context.Context) (Health, error)
}
