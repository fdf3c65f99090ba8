package syncer

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// This file applies the batches of a stream. A batch takes several round trips. If the target is far
// away, the next batches begin before it has ended. The shards advance in the order of the batches,
// and past none that failed.
//
// Two batches never write the same group at the same time, because their transactions would conflict. A
// batch waits with the groups that an earlier one is writing, and with no others. A write reads the
// newest state of a group. So if a group waits in an earlier batch already, that write also serves the
// later batch. The changes of a busy group thus never queue up, and batches of changes to random
// records, most of which share a group with the batch before, hardly wait.
//
// Any two units of groups by content may belong to one group, so batches with units take turns. While
// one waits for its turn, no further batch begins, and the changes of a busy group gather behind it.

const (
	// flightsAtOnce is the number of batches of a stream that are written at the same time.
	flightsAtOnce = 12
	// flightsInAir is the number of batches that have not landed. Those behind a batch that takes
	// longer have been written, and wait.
	flightsInAir = 4 * flightsAtOnce
	// flightPatience is how long the next batch waits for the one before. A near target needs less.
	// Its changes then gather in one larger batch, which is less work than several small ones.
	flightPatience = 50 * time.Millisecond
	// backlog is the batch size at which the stream has probably more waiting.
	backlog = 1000
)

// flight is a batch that is being applied.
type flight struct {
	batch   record.ChangeBatch
	dirt    dirt
	late    map[*shard]int64
	marked  bool
	arrived time.Time
	took    time.Duration // without a wait for the batch before, except for that of its groups
	units   bool          // some groups are units of groups by content
	waits   bool          // some of these wait for their turn
	rides   bool          // some groups are written by an earlier batch
	free    *part         // groups that no earlier batch is writing
	shared  *part         // groups that an earlier batch is writing
	turns   []*part       // what shared waits for

	landed chan struct{} // closed at the end, with failed and again set
	failed bool
	again  bool // a new stream is needed
}

// hasLanded reports whether the batch has been applied or has failed.
func (f *flight) hasLanded() bool {
	select {
	case <-f.landed:
		return true
	default:
		return false
	}
}

// await waits until the batch has landed. f may be nil.
func (f *flight) await(ctx context.Context) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.landed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// succeeded waits until the batch has landed, and returns errBefore if it has failed. f may be nil.
func (f *flight) succeeded(ctx context.Context) error {
	if err := f.await(ctx); err != nil {
		return err
	}
	if f != nil && f.failed {
		return errBefore
	}
	return nil
}

// wait waits until the next batch may be read. After a fence the next batch needs the marker in the
// shards' places. Behind a unit that waits for its turn, the next batch would wait, too. again asks for
// a new stream.
func (f *flight) wait(ctx context.Context) (again bool) {
	if !f.marked && !f.waits {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, flightPatience)
		defer stop()
	}
	return f.await(ctx) == nil && f.again
}

// launch begins to apply a batch. It lands behind the latest one, and not at all if that has failed.
// origins reports whether the changes show their origin.
func (e *Engine) launch(ctx context.Context, a *air, b record.ChangeBatch, origins bool) error {
	if len(b.Changes) > 0 {
		if err := e.await(ctx, func() bool { return e.roomForLate() || e.over() || e.restart }); err != nil {
			return err
		}
	}
	// Taken after the wait for room, which is backpressure and no lag.
	f := &flight{batch: b, arrived: time.Now(), landed: make(chan struct{})}
	f.free, f.shared = newPart(f), newPart(f)
	f.marked = slices.ContainsFunc(b.Changes, func(c record.Change) bool { return c.Marker != "" })
	if f.marked {
		// A fence is announced before it is set, but the stream may be faster than the watch. The
		// newest record is needed to tell late deletes after the marker from earlier changes.
		if err := e.refresh(ctx); err != nil {
			return err
		}
	}
	f.dirt = e.dirtyGroups(b, origins)
	for _, id := range f.dirt.ids {
		f.assign(id, e.byContent(id), a.up)
	}
	select {
	case a.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	before := a.latest
	a.latest, a.up = f, append(a.up, f)
	a.g.Go(func() error {
		defer close(f.landed)
		err := e.fly(ctx, f, before, func() { <-a.room })
		f.failed = err != nil
		if errors.Is(err, errBefore) {
			return nil // that batch returns the reason
		}
		return err
	})
	return nil
}

// fly applies a batch, within a span if it has changes. written is called when the batch needs the
// databases no more. It then lands after the batch before it.
func (e *Engine) fly(ctx context.Context, f, before *flight, written func()) (err error) {
	if len(f.batch.Changes) > 0 {
		var span trace.Span
		ctx, span = e.Tracer.Start(ctx, "apply changes")
		defer func() { endSpan(span, err, attribute.Int("changes", len(f.batch.Changes))) }()
	}
	// Everything that may fail happens before the shards advance, so that an error repeats the batch.
	err = e.consume(ctx, f, before)
	written()
	if err != nil {
		return err
	}
	f.took = time.Since(f.arrived)
	if err := before.succeeded(ctx); err != nil {
		return err
	}
	if f.rides {
		// What it waited for was already on its way for the batch before. The shard is as late as that.
		f.took = max(time.Since(f.arrived), before.took)
	}
	e.land(f)
	return nil
}

// consume applies the changes of one batch.
func (e *Engine) consume(ctx context.Context, f, before *flight) (err error) {
	d, at := f.dirt, f.batch.Pos.At
	// These judge single keys by what is there, so the changes before them must be there.
	if len(d.lateDeletes)+len(d.ungrouped) > 0 {
		if err := before.succeeded(ctx); err != nil {
			return err
		}
	}
	if f.late, err = e.foreignDeletes(ctx, d.lateDeletes, at); err != nil {
		return err
	}
	if err := e.changedKeys(ctx, d.ungrouped, at); err != nil {
		return err
	}
	g, writing := errgroup.WithContext(ctx)
	g.Go(func() error { return e.write(writing, f.free) })
	g.Go(func() error {
		if err := f.takeTurns(writing); err != nil {
			return err
		}
		return e.write(writing, f.shared)
	})
	return g.Wait()
}

// errBefore means that an earlier batch has failed. The stream begins again there.
var errBefore = errors.New("an earlier batch of changes failed")

// land advances the shards past a batch. That includes a batch that ends exactly at a shard's position,
// since several changes may share one position.
func (e *Engine) land(f *flight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, d := f.batch, f.dirt
	f.again = e.restart
	for _, s := range e.shards {
		if !s.follows(b) {
			continue
		}
		if !e.over() {
			// Before applied moves: a late entry records the place before its change.
			for _, id := range d.hits[s] {
				s.addLate(id)
			}
			s.appliedCount += int64(len(d.hits[s]))
		}
		s.applied = s.applied.after(b, f.late[s])
		s.heard = time.Now()
		s.lag = 0
		if b.Wall > 0 {
			s.lag = max(0, time.Since(time.UnixMilli(b.Wall)))
		}
		// The clocks of two machines may disagree. So only the time in this process decides, and
		// whether the stream had a backlog.
		s.took = f.took
		if s.took > e.cfg.LagBound || len(b.Changes) >= backlog {
			s.inSync = time.Time{}
			if s.behind.IsZero() {
				s.behind = f.arrived
			}
		} else if s.behind = (time.Time{}); s.inSync.IsZero() {
			s.inSync = time.Now()
		}
		s.dirty = s.dirty || len(d.hits[s]) > 0 || f.late[s] > 0 || f.marked
		if len(s.late) == 0 || e.over() {
			s.compared = s.applied
		}
	}
	e.announce()
}
