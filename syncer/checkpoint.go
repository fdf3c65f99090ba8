package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
)

// checkpoint returns the present state in its stored form. Engine.mu is held.
func (s *shard) checkpoint() Checkpoint {
	c := Checkpoint{
		Position: s.compared.at, Markers: s.compared.markers, LateDeletes: s.compared.lateDeletes,
		Copied: map[string]record.Range{}, Count: s.copied,
		// A group that differs is not part of a checkpoint. The next owner must find it again.
		Verified: s.verified && !s.rescan && s.found == 0, Rescan: s.rescan || s.rescanned && s.found > 0, Fences: s.fences,
		Target: s.targetMark(), Repair: s.repair, Left: s.left.at, LeftMarkers: s.left.markers,
	}
	c.setDone(s.names, s.done)
	for name, t := range s.todo {
		if t.begun {
			c.Copied[name] = t.stored()
		}
	}
	// Earlier binaries take an empty Copied for the end of the copy.
	if len(c.Copied) == 0 {
		for name, t := range s.todo {
			c.Copied[name] = t.stored()
			break
		}
	}
	return c
}

// checkpointChunk is the number of checkpoints in one transaction. With their locks they stay below
// coord.MaxOps.
const checkpointChunk = 16

// unsaved is a checkpoint that is about to be stored.
type unsaved struct {
	shard      *shard
	number     int
	checkpoint Checkpoint
	complete   bool
	anew       int // shard.anew when the checkpoint was made
	lock       coord.Condition
}

// saveCheckpoints stores the checkpoints with new work. With all, it also stores those whose
// position advanced without a record. It returns the approximate bytes written.
func (e *Engine) saveCheckpoints(ctx context.Context, all bool) (written int, err error) {
	if err := e.saving.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	defer e.saving.Release(1)
	save := e.takeCheckpoints(all)
	if len(save) == 0 {
		return 0, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("save checkpoints: %w", err)
		}
	}()
	// The beat comes after the work and before the checkpoints. A backup older than a stored
	// checkpoint then lacks the beat, which reveals a restore.
	if err := e.lives(ctx); err != nil {
		e.notStored(save)
		return 0, err
	}
	for len(save) > 0 {
		chunk := save[:min(checkpointChunk, len(save))]
		n, err := e.saveChunk(ctx, chunk)
		// Saving an already stored checkpoint again does no harm.
		if written += n; err != nil {
			e.notStored(save)
			return written, err
		}
		save = save[len(chunk):]
	}
	return written, nil
}

// takeCheckpoints makes the checkpoints to be stored, ordered by shard.
func (e *Engine) takeCheckpoints(all bool) (save []unsaved) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n, s := range e.shards {
		if s.dirty || all {
			save = append(save, unsaved{s, n, s.checkpoint(), s.complete(), s.anew, s.lock.Condition()})
			s.dirty = false
		}
	}
	slices.SortFunc(save, func(a, b unsaved) int { return a.number - b.number })
	return save
}

// notStored marks the shards dirty again after a failed save.
func (e *Engine) notStored(save []unsaved) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range save {
		c.shard.dirty = true
	}
}

// saveChunk stores one transaction of checkpoints under the locks of their shards.
func (e *Engine) saveChunk(ctx context.Context, chunk []unsaved) (written int, err error) {
	checkpoints := make(map[int]Checkpoint, len(chunk))
	locks := make([]coord.Condition, len(chunk))
	for i, c := range chunk {
		checkpoints[c.number], locks[i] = c.checkpoint, c.lock
		written += c.checkpoint.size()
	}
	if err := e.Journal.SaveCheckpoints(ctx, e.key, checkpoints, locks...); err != nil {
		return written, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range chunk {
		// A checkpoint from before compareAnew does not show that the shard is compared.
		c.shard.stored = c.complete && c.anew == c.shard.anew
	}
	return written, nil
}

// keep stores checkpoints and publishes progress periodically. It does not wait for comparisons,
// which may take long: a kill must not cost more than seconds of work.
func (e *Engine) keep(ctx context.Context) error {
	next := time.NewTimer(e.cfg.Every)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
		}
		written, err := e.keepOnce(ctx)
		e.wrote(written)
		next.Reset(e.untilWrite())
		if err == nil {
			if e.savesNow() { // other rounds store none, and prove nothing
				e.recovered("checkpoint")
			}
		} else if ctx.Err() == nil {
			e.failed("checkpoint", err)
		}
	}
}

// journalRate bounds the bytes of checkpoints and progress that all controllers together write per
// second, on average. The coordination store keeps each revision for minutes, and a full store
// would also stop flips and aborts. So the traffic must not grow with the number of shards and
// kinds. At 1,024 shards a round comes about every five seconds, at 64 and fewer twice a second.
const journalRate = 128 << 10

// wrote accounts for written bytes. A controller has a share of the rate in proportion to its
// shards, so that more controllers do not write more.
func (e *Engine) wrote(bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rate := float64(journalRate) * float64(max(1, len(e.shards))) / float64(e.cfg.Ring)
	from := time.Now()
	// Debts add up. After a pause the full rate is available at once.
	if e.writeAfter.After(from) {
		from = e.writeAfter
	}
	e.writeAfter = from.Add(time.Duration(float64(bytes) / rate * float64(time.Second)))
}

// untilWrite returns the time until the next round of keep.
func (e *Engine) untilWrite() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(e.cfg.Every, time.Until(e.writeAfter))
}

// idleCheckpoint is the interval for storing the checkpoints of idle shards.
const idleCheckpoint = 30 * time.Second

// roundsToSave is the number of keep rounds per save of checkpoints. A save costs a majority write
// in both databases. A shard that waits only for its checkpoint is saved at once.
const roundsToSave = 4

// savesNow reports whether this round stores checkpoints.
func (e *Engine) savesNow() bool { return e.round%roundsToSave == 0 }

// keepOnce runs one round of keep and returns the approximate bytes written.
func (e *Engine) keepOnce(ctx context.Context) (written int, err error) {
	if e.round++; e.unstored() {
		e.round = roundsToSave
	}
	if e.savesNow() {
		// The positions of idle shards must advance, too, or they fall out of the source's history.
		all := time.Since(e.savedAll) > idleCheckpoint
		if written, err = e.saveCheckpoints(ctx, all); err != nil {
			return written, e.lostOwnership(err)
		}
		if all {
			e.savedAll = time.Now()
		}
	}
	published, err := e.publish(ctx)
	return written + published, err
}
