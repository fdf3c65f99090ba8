package vrunner

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// ErrLost means that a subscription has lost changes, because its caller was too slow or because
// the database no longer has the history. The caller cannot know what changed and must list again.
// The subscription stays open and covers all later changes. A handler that runs under Runner.Stream
// can return the error instead: the Runner starts it again.
var ErrLost = refusal.Because(refusal.StreamEnded, "changes were lost; list again", nil)

// errStopped ends the streams and subscriptions of a server that stops.
var errStopped = refusal.Because(refusal.Stopping, "server stops; call again", nil)

// maxDirty and maxDirtyBytes bound the names that wait for one subscriber.
const (
	maxDirty      = 10_000
	maxDirtyBytes = 4 << 20
	// fewDirtyBytes is the size of names that may use the last free memory. Without memory for a
	// few names, a watch would list everything again at each change. Longer queues leave that
	// memory to other requests.
	fewDirtyBytes = 4 << 10
)

// Dirty names a record that was created, changed or deleted. It does not contain the record's data;
// callers read the record.
type Dirty struct {
	Kind string
	Name string
}

// subscription is one caller's subscription to the changes of a version. One goroutine at a time
// may call Next. It queues each dirty name once: at most 10,000 names or 4 MiB, and fewer if other
// requests hold the memory.
type subscription struct {
	hub   *hub
	kinds []string
	wake  chan struct{} // has an item when take may return something

	// Guarded by hub.mu.
	joined bool // all later acknowledged changes are delivered
	lost   bool
	order  []Dirty
	set    map[Dirty]struct{}
	bytes  int          // total length of the names in order
	taken  int64        // size of the names that Next returned last
	held   *memory.Held // counts taken and the queue
}

// Changes subscribes to the changes of kinds. It delivers every change that is acknowledged after
// Changes returns. So a handler subscribes first, then lists, and then reads each dirty record with
// Get. A name may be delivered although nothing has changed.
//
// All subscribers of a version share one change stream, which is open while there are any. The
// stream follows the version through fences, switches and failovers. While the version is not
// active, it reports the writes of the sync. Kinds that the version lacks, or with fixed names, are
// errors. The caller must close the subscription.
func (v *View) Changes(ctx context.Context, kinds ...string) (Subscription, error) {
	if err := v.watchable(ctx, kinds); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, v.runner.cfg.HoldCap)
	defer cancel()
	c, err := v.hub.subscribe(bounded, kinds)
	if err != nil {
		// A timeout of our own keeps the reason why the stream does not start.
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("changes of %s: %w", v.version, err)
	}
	return c, nil
}

// watchable refuses kinds that the version does not have and kinds with fixed names.
func (v *View) watchable(ctx context.Context, kinds []string) error {
	if v.hub == nil {
		return fmt.Errorf("changes of %s: the server was given no Watcher for its database", v.version)
	}
	if len(kinds) == 0 {
		return fmt.Errorf("changes of %s: no kinds were named", v.version)
	}
	d := v.runner.current()
	if req := requestOf(ctx); req != nil && req.version != d.CurrentVersion {
		// The Runner runs the request again on the new stack.
		req.moved.Store(true)
		return errMoved
	}
	ns, _ := d.Namespace(v.version)
	for _, kind := range kinds {
		switch i := slices.IndexFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Kind == kind }); {
		case i < 0 || upgradestate.Retired(d, v.version):
			return v.absent(d, kind)
		case ns.Kinds[i].Fixed:
			return &record.UnsupportedError{What: "changes of " + v.version + "/" + kind, Reason: "its application reads and follows the collection directly"}
		}
	}
	return nil
}

// Next waits for dirty names and returns all of them. After ErrLost the caller must list again.
func (c *subscription) Next(ctx context.Context) ([]Dirty, error) {
	for {
		names, lost, stopped := c.take()
		switch {
		case lost:
			// Runner.Stream must also restart a handler that hides the error.
			if req := requestOf(ctx); req != nil {
				req.lost.Store(true)
			}
			return nil, ErrLost
		case len(names) > 0:
			return names, nil
		case stopped:
			return nil, errStopped
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.wake:
		}
	}
}

// Close ends the subscription.
func (c *subscription) Close() { c.hub.leave(c) }

func (c *subscription) take() (names []Dirty, lost, stopped bool) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	names, lost = c.order, c.lost
	// The caller holds these names until its next call, so they still count.
	c.taken = c.waiting()
	c.order, c.set, c.bytes, c.lost = nil, nil, 0, false
	c.held.Set(c.taken)
	return names, lost, c.hub.stopped
}

// add queues a dirty name. The caller holds hub.mu.
func (c *subscription) add(d Dirty) {
	// After a loss the caller lists again, so names queued before that are useless.
	if c.lost || !slices.Contains(c.kinds, d.Kind) {
		return
	}
	if _, there := c.set[d]; there {
		return
	}
	// The hub must not wait for a slow subscriber, so the subscription loses its changes instead.
	if c.bytes += len(d.Name); len(c.order) == maxDirty || c.bytes > maxDirtyBytes || !c.hold(c.taken+c.waiting()+entryBytes) {
		c.lose()
		return
	}
	if c.set == nil {
		c.set = map[Dirty]struct{}{}
	}
	c.set[d] = struct{}{}
	c.order = append(c.order, d)
	c.signal()
}

// hold reports whether there is memory for that many bytes of names. The caller holds hub.mu.
func (c *subscription) hold(bytes int64) bool {
	if bytes <= fewDirtyBytes {
		return c.held.Set(bytes)
	}
	return c.held.SetSpare(bytes)
}

// waiting returns the approximate size of the queue in bytes. The caller holds hub.mu.
func (c *subscription) waiting() int64 { return int64(c.bytes + entryBytes*len(c.order)) }

// lose empties the queue and marks the subscription as lost. The caller holds hub.mu.
func (c *subscription) lose() {
	c.lost, c.order, c.set, c.bytes = true, nil, nil, 0
	c.held.Set(c.taken)
	c.signal()
}

func (c *subscription) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
