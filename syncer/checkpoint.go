package syncer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
)

// checkpoint is what can be stored of a shard now.
func (s *shard) checkpoint() Checkpoint {
	c := Checkpoint{
		Position: s.compared.at, Markers: s.compared.markers, LateDeletes: s.compared.lateDeletes,
		Copied: map[string]record.Range{}, Count: s.copied,
		// What is known to differ is found again by the next owner.
		Verified: s.verified && !s.rescan && s.found == 0, Rescan: s.rescan || s.rescanned && s.found > 0, Fences: s.fences,
		Target: s.targetMark(), Repair: s.repair,
	}
	c.setDone(s.names, s.done)
	for name, t := range s.todo {
		if t.begun {
			c.Copied[name] = t.stored()
		}
	}
	if len(c.Copied) == 0 {
		for name, t := range s.todo {
			c.Copied[name] = t.stored()
			break
		}
	}
	return c
}

// checkpointChunk is how many checkpoints go into one transaction: with their locks
// they stay below coord.MaxOps.
const checkpointChunk = 16

// unsaved is the checkpoint of one shard on its way into the journal.
type unsaved struct {
	shard      *shard
	number     int
	checkpoint Checkpoint
	complete   bool
	anew       int // of the shard, when the checkpoint was made
	lock       coord.Condition
}

// saveCheckpoints stores the checkpoints that have changed (all: also those that only
// moved on without any record), and returns about how many bytes they had.
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
	// A beat after what they say was done, and before they are stored: a backup that is older than
	// what a stored checkpoint says lacks the beat as well.
	if err := e.lives(ctx); err != nil {
		e.notStored(save)
		return 0, err
	}
	for len(save) > 0 {
		chunk := save[:min(checkpointChunk, len(save))]
		n, err := e.saveChunk(ctx, chunk)
		if written += n; err != nil {
			e.notStored(save)
			return written, err
		}
		save = save[len(chunk):]
	}
	return written, nil
}

// takeCheckpoints makes the checkpoints that are to be stored now.
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

// notStored has checkpoints made and stored again.
func (e *Engine) notStored(save []unsaved) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range save {
		c.shard.dirty = true
	}
}

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
		c.shard.stored = c.complete && c.anew == c.shard.anew
	}
	return written, nil
}

// keep stores checkpoints and publishes progress. It does not wait for comparisons, which
// may take long: no more than seconds of work may be lost with this process.
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
			if e.savesNow() { // other rounds show nothing of what failed in one that does
				e.recovered("checkpoint")
			}
		} else if ctx.Err() == nil {
			e.failed("checkpoint", err)
		}
	}
}

// journalRate is how many bytes of checkpoints and progress all controllers together write
// in a second, on average. The coordination store keeps every one of them for minutes, and
// what fills it up ends flips and aborts as well; so the traffic must not follow the number
// of shards and kinds, let alone the data. At 1,024 shards a round comes about every five
// seconds, at 64 and fewer twice a second.
const journalRate = 128 << 10

// wrote notes that so many bytes were written. A controller has the part of the rate that
// its shards are of the ring, so that more controllers write no more.
func (e *Engine) wrote(bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rate := float64(journalRate) * float64(max(1, len(e.shards))) / float64(e.cfg.Ring)
	from := time.Now()
	if e.writeAfter.After(from) {
		from = e.writeAfter
	}
	e.writeAfter = from.Add(time.Duration(float64(bytes) / rate * float64(time.Second)))
}

// untilWrite is how long keep rests.
func (e *Engine) untilWrite() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(e.cfg.Every, time.Until(e.writeAfter))
}

// idleCheckpoint is how often the checkpoints of idle shards are stored.
const idleCheckpoint = 30 * time.Second

// roundsToSave is how many rounds of keep there are for each in which it stores checkpoints, unless a
// shard waits for nothing else: each time costs a majority write in both databases.
const roundsToSave = 4

// savesNow reports whether checkpoints are stored in this round.
func (e *Engine) savesNow() bool { return e.round%roundsToSave == 0 }

// keepOnce returns about how many bytes it has written.
func (e *Engine) keepOnce(ctx context.Context) (written int, err error) {
	if e.round++; e.unstored() {
		e.round = roundsToSave
	}
	if e.savesNow() {
		// Now and then also the checkpoints of idle shards: their positions would fall out of
		// the source's history otherwise.
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
