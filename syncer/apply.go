package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// groupsAtOnce is the number of groups that one worker takes. transform.Sizer bounds the bytes that
// it reads and applies together.
const groupsAtOnce = 500

// syncGroups applies the present source state of groups, read no older than notBefore. When it
// returns nil, each group is applied, newer in the target, or parked.
func (e *Engine) syncGroups(ctx context.Context, ids []transform.GroupID, notBefore record.Version) error {
	return e.bring(ctx, ids, notBefore, forChange)
}

// purpose is the reason for migrating a group. It decides whether equal versions are overwritten.
type purpose int

const (
	forChange purpose = iota // a change, or a retry
	forCopy                  // a page of the copy
	// forRepair overwrites a target that differs although its guard has the version at which the
	// source stands still.
	forRepair
)

// bring migrates groups for a purpose, with all workers.
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

// bringRun migrates groups with reads of a size until none is left. A concurrent writer of the same
// group, such as a copy beside a change, is no error: the group is read again.
func (e *Engine) bringRun(ctx context.Context, run []transform.GroupID, notBefore record.Version, bytes int, why purpose) error {
	b := bringing{
		notBefore: notBefore, bytes: bytes, repair: why != forChange, doubtful: why == forRepair,
		asked: map[transform.GroupID]bool{}, apart: map[transform.GroupID]bool{}, blocked: map[transform.GroupID]transform.Failure{},
	}
	if why != forCopy {
		for _, id := range run {
			b.asked[id] = true
		}
	}
	// A unique index may refuse a group only because another group still holds the value.
	if err := e.bringAll(ctx, run, &b); err != nil || len(b.blocked) == 0 {
		return err
	}
	return e.exchange(ctx, &b)
}

// bringing holds the options and the state of one bringRun.
type bringing struct {
	notBefore record.Version
	bytes     int // bytes of a read
	repair    bool
	together  bool // record.Batch.Together
	// doubtful means that the source may have been restored from a backup since its state was
	// known to be the latest: applyLatest then asks before each write.
	doubtful bool
	// asked holds the groups with a pending change or comparison. It is empty during a copy.
	asked, apart map[transform.GroupID]bool
	// blocked holds the groups that a unique index refused, for exchange. at is the version of the
	// latest of them.
	blocked map[transform.GroupID]transform.Failure
	at      record.Version
	steps   int // steps taken so far to follow rings of groups (exchangeSteps)
}

// changingTries bounds the consecutive attempts at groups that change during the write. Each
// attempt includes the retries of transfer. After the last one the groups are parked, since the
// whole batch waits for them.
const changingTries = 10

// bringAll attempts groups until none is left.
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
				// A dropped collection, as after movePrimary, cannot be read. The stream would
				// report that, but it waits for this batch.
				if gone := e.sameSource(ctx); gone != nil && permanent(gone) {
					err = gone
				}
			}
			return left, err
		})
		if !errors.Is(err, transform.ErrChanging) {
			// A source that was away may come back restored, and the change that this batch stands for
			// may be undone.
			b.doubtful = b.doubtful || err != nil
			return err
		}
		if changing++; len(run) < before { // progress restarts the count
			changing = 0
		}
		if changing < changingTries {
			return err
		}
		// A parked group blocks the switch but no longer holds up the batch.
		for _, id := range run {
			if err := e.park(ctx, id, b.notBefore, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// bringOnce makes one attempt and returns the groups to be read again.
func (e *Engine) bringOnce(ctx context.Context, ids []transform.GroupID, b *bringing) ([]transform.GroupID, error) {
	// Tokens come before the read. Newer ones could let an old image pass the fence that was meant
	// to stop it.
	toks, err := e.awaitApply(ctx)
	if err != nil {
		return ids, err
	}
	src, err := e.sourceView(ctx, b.notBefore)
	if err != nil {
		return ids, err
	}
	// From here on memory is reserved. Nothing below may wait for anything but the databases and the
	// coordination store.
	held, err := e.hold(ctx, b.bytes)
	if err != nil {
		return ids, err
	}
	defer held.release()
	apply := e.applyRead
	if b.doubtful {
		apply = e.applyLatest
	}
	t := e.transfer(src.Within(b.bytes), e.target(toks).Within(b.bytes), func(ctx context.Context, batch record.Batch) ([]record.Result, error) {
		held.shrink(batch)
		return apply(ctx, batch)
	})
	t.Source, t.Target = held.counted(t.Source), held.counted(t.Target)
	t.Apart, t.Repair, t.Together = b.apart, b.repair, b.together
	t.Done = func(ctx context.Context, c *transform.Component) error {
		// Members that left the group changed with it, and no event names them here.
		if len(b.asked) > 0 {
			e.compareLeft(c)
		}
		return e.unparkAll(ctx, c)
	}
	t.Fail = func(ctx context.Context, f transform.Failure, at record.Version) error {
		// A unique conflict is not final until exchange has tried the holders of the value.
		if errors.Is(f.Err, record.ErrConflict) {
			b.blocked[f.Unit], b.at = f, at
			return nil
		}
		return e.fail(ctx, f, at, b.asked)
	}
	return t.Once(ctx, ids)
}

// applyRead writes what was just read from the source. The source may have been restored from a
// backup before the read. Then the process has new connections to it since the latest check, and
// applyLatest checks again. A check for each batch would add a majority write in both databases.
func (e *Engine) applyRead(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if e.Lives != nil && e.checked.Load() != e.Source.Connections()+1 {
		return e.applyLatest(ctx, b)
	}
	return e.applyOwn(ctx, b)
}

// applyLatest is applyOwn for a state of the source that may be older than a state that the target
// has, as after a restore. The target may then hold the only copy of the changes that the restore has
// undone. The check comes between the read of the source and the write. A restore before the read is
// found, and a restore after the read does not change what was read.
func (e *Engine) applyLatest(ctx context.Context, b record.Batch) ([]record.Result, error) {
	// Before the check, which may itself open a connection.
	connections := e.Source.Connections()
	if err := e.lives(ctx); err != nil {
		return nil, err
	}
	// Another controller may have found the restore and made the database count again. Its record
	// forbids the write, and the watch may not have delivered it yet.
	if err := e.refresh(ctx); err != nil {
		return nil, err
	}
	e.mu.Lock()
	foreign, over, allowed := e.foreign(e.record), e.over(), upgradestate.ApplyAllowed(e.record)
	e.mu.Unlock()
	switch {
	case over:
		return nil, errOver
	case foreign != nil:
		return nil, foreign
	case !allowed:
		return nil, fmt.Errorf("the deployment allows no writes to the target now: %w", record.ErrFenced) // read again
	}
	e.checked.Store(connections + 1)
	return e.applyOwn(ctx, b)
}

// fail parks a group, or lets a unit wait for the rest of its group.
func (e *Engine) fail(ctx context.Context, f transform.Failure, at record.Version, asked map[transform.GroupID]bool) error {
	if e.byContent(f.Unit) {
		return e.failUnit(ctx, f, at, asked)
	}
	return e.park(ctx, f.Unit, at, f.Err)
}

// transfer returns the transform.Transfer of this engine: it parks groups that fail and unparks
// groups that succeed.
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

// unparkAll unparks all units and members of a written component. Other controllers may have parked
// some of them.
func (e *Engine) unparkAll(ctx context.Context, c *transform.Component) error {
	e.mu.Lock()
	nothing := len(e.parked)+len(e.failing) == 0
	e.mu.Unlock()
	if nothing { // no copy of the member lists in the common case
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
