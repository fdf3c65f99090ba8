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
	"dbcontroller.dev/transform"
)

// This file applies the batches of a stream. A batch takes several round trips. If the target is far
// away, the next batches begin before it has ended. The shards advance in the order of the batches,
// and past none that failed. Two batches never write the same group at the same time, because their
// transactions would conflict. Any two units of groups by content may belong to one group, so batches
// with units take turns. While one waits for its turn, no further batch begins: the changes of a busy
// group then gather in one batch behind it, and do not queue up in several.

const (
	// flightsAtOnce is the number of batches of a stream that are applied at the same time.
	flightsAtOnce = 4
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
	took    time.Duration              // without a wait for the batch before, except for its turn
	groups  map[transform.GroupID]bool // dirt.ids as a set
	units   bool                       // some of them are units of groups by content
	free    []transform.GroupID        // groups of dirt that no earlier batch is writing
	shared  []transform.GroupID        // the others, which wait for their turn

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

// wait waits until the next batch may be read. After a fence the next batch needs the marker in the
// shards' places. Behind a group that waits for its turn, the next batch would wait, too. again asks
// for a new stream.
func (f *flight) wait(ctx context.Context) (again bool) {
	if !f.marked && len(f.shared) == 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, flightPatience)
		defer stop()
	}
	return f.await(ctx) == nil && f.again
}

// launch begins to apply a batch. before is the one before it, nil for the first of a stream: the batch
// lands behind it, and not at all if it has failed. air holds all earlier ones that have not landed.
// origins reports whether the changes show their origin.
func (e *Engine) launch(ctx context.Context, g *errgroup.Group, b record.ChangeBatch, origins bool, before *flight, air []*flight) (*flight, error) {
	if len(b.Changes) > 0 {
		if err := e.await(ctx, func() bool { return e.roomForLate() || e.over() || e.restart }); err != nil {
			return nil, err
		}
	}
	// Taken after the wait for room, which is backpressure and no lag.
	f := &flight{batch: b, arrived: time.Now(), landed: make(chan struct{}), groups: map[transform.GroupID]bool{}}
	f.marked = slices.ContainsFunc(b.Changes, func(c record.Change) bool { return c.Marker != "" })
	if f.marked {
		// A fence is announced before it is set, but the stream may be faster than the watch. The
		// newest record is needed to tell late deletes after the marker from earlier changes.
		if err := e.refresh(ctx); err != nil {
			return nil, err
		}
	}
	f.dirt = e.dirtyGroups(b, origins)
	for _, id := range f.dirt.ids {
		f.groups[id] = true
		unit := e.byContent(id)
		f.units = f.units || unit
		if slices.ContainsFunc(air, func(other *flight) bool { return !other.hasLanded() && (other.groups[id] || unit && other.units) }) {
			f.shared = append(f.shared, id)
		} else {
			f.free = append(f.free, id)
		}
	}
	g.Go(func() error {
		defer close(f.landed)
		err := e.fly(ctx, f, before)
		f.failed = err != nil
		if errors.Is(err, errBefore) {
			return nil // that batch returns the reason
		}
		return err
	})
	return f, nil
}

// fly applies a batch within a span, if it has changes.
func (e *Engine) fly(ctx context.Context, f, before *flight) (err error) {
	if len(f.batch.Changes) > 0 {
		var span trace.Span
		ctx, span = e.Tracer.Start(ctx, "apply changes")
		defer func() { endSpan(span, err, attribute.Int("changes", len(f.batch.Changes))) }()
	}
	if err := e.consume(ctx, f, before); err != nil {
		return err
	}
	e.land(f)
	return nil
}

// consume applies one batch, and waits for the batch before it. Everything that may fail happens here,
// before the shards advance, so that an error repeats the batch.
func (e *Engine) consume(ctx context.Context, f, before *flight) (err error) {
	d, at := f.dirt, f.batch.Pos.At
	// These judge single keys by what is there, so the changes before them must be there.
	if len(d.lateDeletes)+len(d.ungrouped) > 0 {
		if err := before.await(ctx); err != nil {
			return err
		}
	}
	if f.late, err = e.foreignDeletes(ctx, d.lateDeletes, at); err != nil {
		return err
	}
	if err := e.changedKeys(ctx, d.ungrouped, at); err != nil {
		return err
	}
	if err := e.applyChanges(ctx, f.free, at); err != nil {
		return err
	}
	f.took = time.Since(f.arrived)
	if err := before.await(ctx); err != nil {
		return err
	}
	if before != nil && before.failed {
		return errBefore
	}
	if len(f.shared) == 0 {
		return nil
	}
	err = e.applyChanges(ctx, f.shared, at)
	f.took = time.Since(f.arrived)
	return err
}

// errBefore means that an earlier batch has failed. The stream begins again there.
var errBefore = errors.New("an earlier batch of changes failed")

// applyChanges is syncGroups for groups that changed.
func (e *Engine) applyChanges(ctx context.Context, ids []transform.GroupID, at record.Version) error {
	if len(ids) == 0 {
		return nil
	}
	err := e.syncGroups(ctx, ids, at)
	if errors.Is(err, errOver) {
		// The flip came meanwhile. The reverse sync undoes these changes.
		return nil
	}
	return err
}

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
