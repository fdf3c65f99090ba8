// Package closing bounds the work that outlives its context: the close of what a server holds for this
// process, such as a change stream or a lease, and steps that must follow a step that was done.
package closing

import (
	"context"
	"time"
)

// Timeout is how long Bounded and Outlive wait for a server. A server that does not answer must not
// hold up an abort or the end of a process.
const Timeout = 2 * time.Second

// Bounded calls end, such as the Close of a stream, with a context that outlives ctx by at most
// Timeout. Work often ends because ctx ended, and the server should still release what it holds.
func Bounded(ctx context.Context, end func(context.Context) error) error {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	return end(stop)
}

// Outlive returns a context that ends Timeout after ctx does. It is for work that must not stop between
// two steps. The caller must call done.
func Outlive(ctx context.Context) (outliving context.Context, done context.CancelFunc) {
	outliving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		defer cancel()
		last := time.NewTimer(Timeout)
		defer last.Stop()
		select {
		case <-last.C:
		case <-outliving.Done():
		}
	})
	return outliving, func() { stop(); cancel() }
}
