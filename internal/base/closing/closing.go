// Package closing bounds the close of what a server holds for this process, such as a change stream
// or a lease.
package closing

import (
	"context"
	"time"
)

// Timeout is how long Bounded waits for a server. A server that does not answer must not hold up an
// abort or the end of a process.
const Timeout = 2 * time.Second

// Bounded calls end, such as the Close of a stream, with a context that outlives ctx by at most
// Timeout. Work often ends because ctx ended, and the server should still release what it holds.
func Bounded(ctx context.Context, end func(context.Context) error) error {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	return end(stop)
}
