package syncer

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
)

// groupsAtOnce is how many groups one worker is given. How many of them are read and applied
// together is bounded by their bytes (transform.Sizer).
const groupsAtOnce = 500

// syncGroups brings groups to the target as the source holds them now, no older than
// notBefore. When it returns nil each of them is applied, was newer already, or is parked.
func (e *Engine) syncGroups(ctx context.Context, ids []transform.GroupID, notBefore record.Version) error {
	return e.bring(ctx, ids, notBefore, forChange)
}

// purpose is why groups are migrated.
type purpose int

const (
	forChange purpose = iota // they have changed, or are tried again
	forCopy                  // a copy has met them
	// forRepair: they differ. The target's guards may be of the very version that the source
	// stands still at.
	forRepair
)

// bring is syncGroups for a purpose.
func (e *Engine) bring(ctx context.Context, ids []transform.GroupID, notBefore record.Version, why purpose) error {
	named, units := e.split(ids)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(e.cfg.Workers)
	for chunk := range slices.Chunk(units, groupsAtOnce) {
		g.Go(func() error { return e.bringRun(ctx, chunk, notBefore, transform.ReadBytes, why) })
	}
	for chunk := range slices.Chunk(named, groupsAtOnce) {
		g.Go(func() error {
			return transform.Each(&e.sizes, chunk, func(run []transform.GroupID, bytes int) error {
				return e.bringRun(ctx, run, notBefore, bytes, why)
			})
		})
	}
	return g.Wait()
}

// bringRun brings groups with reads of so many bytes, until none is left. Another writer of
// the same group, a copy next to a change, is no failure: what it left behind is read
// again.
func (e *Engine) bringRun(ctx context.Context, run []transform.GroupID, notBefore record.Version, bytes int, why purpose) error {
	b := bringing{
		notBefore: notBefore, bytes: bytes, repair: why != forChange,
		asked: map[transform.GroupID]bool{}, apart: map[transform.GroupID]bool{}, blocked: map[transform.GroupID]transform.Failure{},
	}
	if why != forCopy {
		for _, id := range run {
			b.asked[id] = true
		}
	}
	if err := e.bringAll(ctx, run, &b); err != nil || len(b.blocked) == 0 {
		return err
	}
	return e.exchange(ctx, &b)
}

// bringing is how groups are migrated.
type bringing struct {
	notBefore record.Version
	bytes     int // of a read
	repair    bool
	together  bool // record.Batch.Together
	// asked holds the groups with a pending change or comparison. It is empty during a copy.
	asked, apart map[transform.GroupID]bool
	// blocked are the groups that a unique index refuses, and at is the version of the latest of
	// them. They wait for exchange.
	blocked map[transform.GroupID]transform.Failure
	at      record.Version
	steps   int // for which rings were followed one by one
}

// changingTries is how often in a row groups may keep changing under the write (each time that
// is transfer's own limit of tries) before they are parked: nobody else waits for them longer.
const changingTries = 10

// bringAll makes attempts at groups until none is left.
func (e *Engine) bringAll(ctx context.Context, run []transform.GroupID, b *bringing) error {
	changing := 0
	return e.persist(ctx, "apply changes", func() (err error) {
		before := len(run)
		run, err = transform.Until(run, func(ids []transform.GroupID) (left []transform.GroupID, err error) {
			err = e.unfenced(ctx, func() (err error) {
				left, err = e.bringOnce(ctx, ids, b)
				return err
			})
			if errors.Is(err, record.ErrFenced) {
				// Nothing can be read of a collection that is gone, as after movePrimary. The stream,
				// which would say so, waits for this.
				if gone := e.sameSource(ctx); gone != nil && permanent(gone) {
					err = gone
				}
			}
			return left, err
		})
		if !errors.Is(err, transform.ErrChanging) {
			return err
		}
		if changing++; len(run) < before {
			changing = 0
		}
		if changing < changingTries {
			return err
		}
		for _, id := range run {
			if err := e.park(ctx, id, b.notBefore, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// bringOnce makes one attempt and returns the groups that have to be read again.
func (e *Engine) bringOnce(ctx context.Context, ids []transform.GroupID, b *bringing) ([]transform.GroupID, error) {
	toks, err := e.awaitApply(ctx)
	if err != nil {
		return ids, err
	}
	src, err := e.sourceView(ctx, b.notBefore)
	if err != nil {
		return ids, err
	}
	release, err := e.hold(ctx, b.bytes)
	if err != nil {
		return ids, err
	}
	defer release()
	t := e.transfer(src.Within(b.bytes), e.target(toks).Within(b.bytes), e.applyOwn)
	t.Apart, t.Repair, t.Together = b.apart, b.repair, b.together
	t.Done = func(ctx context.Context, c *transform.Component) error {
		if len(b.asked) > 0 {
			e.compareLeft(c)
		}
		return e.unparkAll(ctx, c)
	}
	t.Fail = func(ctx context.Context, f transform.Failure, at record.Version) error {
		if errors.Is(f.Err, record.ErrConflict) {
			b.blocked[f.Unit], b.at = f, at
			return nil
		}
		return e.fail(ctx, f, at, b.asked)
	}
	return t.Once(ctx, ids)
}

// fail parks a group, or has it wait where that may help.
func (e *Engine) fail(ctx context.Context, f transform.Failure, at record.Version, asked map[transform.GroupID]bool) error {
	if e.byContent(f.Unit) {
		return e.failUnit(ctx, f, at, asked)
	}
	return e.park(ctx, f.Unit, at, f.Err)
}

// hold waits until it may hold groups of so many bytes in memory. Copies, comparisons and
// changes all bring groups, each by several workers; as many runs of them as there are
// workers are in memory at a time, of all these together. A group that is larger than a run
// is alone. A worker that holds some must not wait for anything but the databases.
func (e *Engine) hold(ctx context.Context, bytes int) (release func(), err error) {
	part := int64(1)
	if bytes > transform.ReadBytes {
		part = int64(e.cfg.Workers)
	}
	if err := e.holding.Acquire(ctx, part); err != nil {
		return nil, err
	}
	return func() { e.holding.Release(part) }, nil
}

// transfer is how this engine brings groups over: what fails is parked, and what now fits
// is no longer parked.
func (e *Engine) transfer(src, dst transform.View, write func(context.Context, record.Batch) ([]record.Result, error)) transform.Transfer {
	return transform.Transfer{
		Resolver: transform.Resolver{
			Direction: e.Direction, Source: e.Source, Target: e.Target, From: src, To: dst, Epoch: e.cfg.Epoch,
		},
		Write: write,
		Done:  e.unparkAll,
		Fail: func(ctx context.Context, f transform.Failure, at record.Version) error {
			return e.park(ctx, f.Unit, at, f.Err)
		},
	}
}

// unparkAll unparks whatever a component that was written consists of: its members may have
// been parked by others.
func (e *Engine) unparkAll(ctx context.Context, c *transform.Component) error {
	e.mu.Lock()
	nothing := len(e.parked)+len(e.failing) == 0
	e.mu.Unlock()
	if nothing {
		return nil
	}
	ids := c.Units
	if c.ByContent() {
		ids = append(c.Members(), ids...)
	}
	for _, id := range ids {
		e.mu.Lock()
		delete(e.failing, id)
		e.mu.Unlock()
		if err := e.unpark(ctx, id, c.Version); err != nil {
			return err
		}
	}
	return nil
}

// shardOf is the shard of a group.
func (e *Engine) shardOf(id transform.GroupID) int { return shards.Of(id.Name, e.cfg.Ring) }
