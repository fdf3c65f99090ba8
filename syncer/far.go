package syncer

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/engine/distance"
	"dbcontroller.dev/internal/engine/throttle"
)

// This file adds workers for bulk work while a database is far away. A worker waits for the answer to its
// page, and over a distance it does little else. Each further worker has a range of its own, and a
// range has one page under way at a time. So no range moves past a page that is not acknowledged, and
// the pages of a range are written in order, whatever the number of workers is.

const (
	// helperFor is the distance for which each worker gets one helper. A near worker spends about this
	// time on a page.
	helperFor = 50 * time.Millisecond
	// mostHelpers bounds the helpers of an engine, and thereby their memory: a helper holds one page,
	// and reads none ahead.
	mostHelpers = 12
	// lookAgain is the interval of further measurements while helpers work. An overloaded database can
	// seem far away, and an answer that shows it near ends the help.
	lookAgain = time.Second
)

// helpersFor returns the number of helpers for a distance.
func (c Config) helpersFor(far time.Duration) int {
	if far <= distance.Near {
		return 0
	}
	return min(mostHelpers, int(time.Duration(c.Workers)*far/helperFor))
}

// help measures the distance of both databases, and has helpers work while one of them is far away. It
// measures before the first bulk work, so that helpers are there when that begins, and anew whenever bulk
// work begins again: a failover may have moved a primary to another place.
func (e *Engine) help(ctx context.Context, g *errgroup.Group) error {
	h := &help{Engine: e, workers: g}
	for {
		if err := h.spell(ctx); err != nil {
			return err
		}
		if err := h.employ(ctx, 0); err != nil {
			return err
		}
		if err := e.await(ctx, func() bool { return !e.bulkLeft() }); err != nil {
			return err
		}
		if err := e.await(ctx, e.bulkLeft); err != nil {
			return err
		}
	}
}

// help is the state of Engine.help.
type help struct {
	*Engine
	workers *errgroup.Group
	started int // helpers that run; those above Engine.helpers rest
	lent    int // reads that Engine.holding has room for in addition, one for each helper
}

// spell helps until no bulk work is left, or both databases are near and bulk work has begun.
func (h *help) spell(ctx context.Context) error {
	var source, target time.Duration // the shortest that were measured, since load lengthens them; 0: none
	for {
		var looks errgroup.Group
		looks.Go(func() error { return nearer(ctx, &source, h.Source) })
		looks.Go(func() error { return nearer(ctx, &target, h.Target) })
		err := looks.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the workers report it
			h.Log.Debug("the distance of the databases is not measured", zap.Error(err))
		}
		helpers := h.cfg.helpersFor(max(source, target))
		if err := h.employ(ctx, helpers); err != nil {
			return err
		}
		if err := h.await(ctx, h.bulkLeft); err != nil {
			return err
		}
		if source > 0 && target > 0 && helpers == 0 {
			return nil
		}
		if err := wait(ctx, lookAgain); err != nil {
			return err
		}
		h.mu.Lock()
		left := h.bulkLeft()
		h.mu.Unlock()
		if !left {
			return nil
		}
	}
}

// employ makes a number of helpers work, each with memory for one read. The others rest and give theirs
// back: it waits for their pages.
func (h *help) employ(ctx context.Context, helpers int) error {
	h.mu.Lock()
	if h.helpers != helpers {
		h.helpers = helpers
		h.announce()
	}
	h.mu.Unlock()
	for ; h.lent < helpers; h.lent++ {
		h.holding.Release(heldUnits)
	}
	for ; h.lent > helpers; h.lent-- {
		if err := h.holding.Acquire(ctx, heldUnits); err != nil {
			return err
		}
	}
	for ; h.started < helpers; h.started++ {
		n := h.started
		h.workers.Go(func() error { return h.bulkWorker(ctx, n) })
	}
	return nil
}

// nearer measures the distance of a database, and keeps it if it is the least so far.
func nearer(ctx context.Context, least *time.Duration, db distance.Positioner) error {
	now, err := distance.Of(ctx, db)
	if now = max(now, 1); err == nil && (*least == 0 || now < *least) {
		*least = now
	}
	return err
}

// noHelper is the number of a worker that works at any distance. Helpers are numbered from 0.
const noHelper = -1

// helping reports whether helpers work now. They rest while bulk work is limited: the others are enough
// for that, and a helper's page would come on top of the limit. e.mu is held.
func (e *Engine) helping() bool { return e.helpers > 0 && e.Pacer.Cause() == throttle.CauseNone }

// helps reports whether a worker may take a range now. e.mu is held.
func (e *Engine) helps(worker int) bool {
	return worker == noHelper || worker < e.helpers && e.helping()
}
