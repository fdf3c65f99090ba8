package vrunner

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// ErrLost: changes were not kept for this subscriber, because it was too slow or because
// the database's history was. Nothing is known of what changed: list again. The
// subscription goes on, and covers what happens from now on. A handler that runs under
// Runner.Stream may as well return the error: it is run again from its beginning.
var ErrLost = refusal.Because(refusal.StreamEnded, "changes were lost; list again", nil)

// errStopped is what streams and subscriptions of a server that stops end with.
var errStopped = refusal.Because(refusal.Stopping, "server stops; call again", nil)

// maxDirty and maxDirtyBytes bound the names that wait for one subscriber.
const (
	maxDirty      = 10_000
	maxDirtyBytes = 4 << 20
	// fewDirtyBytes may take the last room, too: without room for a few names a watch would have to
	// list everything again at each change. More names leave that room to others.
	fewDirtyBytes = 4 << 10
)

// Dirty names a record that has changed, was made or was deleted. It does not contain what
// the record holds: read it.
type Dirty struct {
	Kind string
	Name string
}

// subscription is one to the changes of a version. One goroutine at a time may call
// Next. It keeps at most 10,000 names, or 4 MiB of them, each once, that are dirty and were not
// taken yet, and fewer where other requests have taken the room.
type subscription struct {
	hub   *hub
	kinds []string
	wake  chan struct{} // has an item when there may be something to take

	// Guarded by hub.mu.
	joined bool // what is acknowledged from now on will be delivered
	lost   bool
	order  []Dirty
	set    map[Dirty]struct{}
	bytes  int          // of the names in order
	taken  int64        // what the caller has of Next, and goes through now
	held   *memory.Held // taken, and what waits
}

// Changes subscribes to the changes of kinds. What is acknowledged after it returned will
// be delivered, so a handler subscribes first, then lists, and then follows: it reads each
// dirty record with Get. A name may be delivered though nothing has changed.
//
// All subscribers of a version share one change stream, which is open while there are
// any. It follows the version through fences, switches and failovers, also while the
// version is not active: then it reports what the sync writes. The subscription must be
// closed.
func (v *View) Changes(ctx context.Context, kinds ...string) (Subscription, error) {
	if err := v.watchable(ctx, kinds); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, v.runner.cfg.HoldCap)
	defer cancel()
	c, err := v.hub.subscribe(bounded, kinds)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("changes of %s: %w", v.version, err)
	}
	return c, nil
}

// watchable refuses kinds that the version does not have, or that have no names.
func (v *View) watchable(ctx context.Context, kinds []string) error {
	if v.hub == nil {
		return fmt.Errorf("changes of %s: the server was given no Watcher for its database", v.version)
	}
	if len(kinds) == 0 {
		return fmt.Errorf("changes of %s: no kinds were named", v.version)
	}
	d := v.runner.current()
	if req := requestOf(ctx); req != nil && req.version != d.CurrentVersion {
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

// Next waits until something is dirty and takes all of it. After ErrLost the caller must
// list again.
func (c *subscription) Next(ctx context.Context) ([]Dirty, error) {
	for {
		names, lost, stopped := c.take()
		switch {
		case lost:
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
	c.taken = c.waiting()
	c.order, c.set, c.bytes, c.lost = nil, nil, 0, false
	c.held.Set(c.taken)
	return names, lost, c.hub.stopped
}

// add remembers a dirty name. hub.mu is held.
func (c *subscription) add(d Dirty) {
	if c.lost || !slices.Contains(c.kinds, d.Kind) {
		return
	}
	if _, there := c.set[d]; there {
		return
	}
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

// hold reports whether there is room for so many bytes of names. hub.mu is held.
func (c *subscription) hold(bytes int64) bool {
	if bytes <= fewDirtyBytes {
		return c.held.Set(bytes)
	}
	return c.held.SetSpare(bytes)
}

// waiting is about what the names that wait take. hub.mu is held.
func (c *subscription) waiting() int64 { return int64(c.bytes + entryBytes*len(c.order)) }

// lose drops what waits, and marks the subscription as lost. hub.mu is held.
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
