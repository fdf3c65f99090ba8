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

// help measures the distance of both databases and starts helpers if one of them is far away. It
// returns when no helper is needed.
func (e *Engine) help(ctx context.Context, g *errgroup.Group) error {
	started := 0
	var source, target time.Duration // the shortest that were measured, since load lengthens them; 0: none
	for {
		var looks errgroup.Group
		looks.Go(func() error { return nearer(ctx, &source, e.Source) })
		looks.Go(func() error { return nearer(ctx, &target, e.Target) })
		err := looks.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the workers report it
			e.Log.Debug("the distance of the databases is not measured", zap.Error(err))
		}
		helpers := e.cfg.helpersFor(max(source, target))
		e.mu.Lock()
		e.helpers = helpers
		e.announce()
		e.mu.Unlock()
		if source > 0 && target > 0 && helpers == 0 {
			return nil
		}
		for ; started < helpers; started++ {
			n := started
			e.holding.Release(heldUnits)
			g.Go(func() error { return e.bulkWorker(ctx, n) })
		}
		if err := wait(ctx, lookAgain); err != nil {
			return err
		}
		if err := e.await(ctx, e.bulkLeft); err != nil {
			return err
		}
	}
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

// helps reports whether a worker may take a range now. Helpers rest while bulk work is limited: the
// others are enough for that, and a helper's page would come on top of the limit. e.mu is held.
func (e *Engine) helps(worker int) bool {
	return worker == noHelper || worker < e.helpers && e.Pacer.Cause() == throttle.CauseNone
}
