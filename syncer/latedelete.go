package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// lateDelete is a delete after the fence of a fixed-name kind, under a fence class that lets
// deletes through.
type lateDelete struct {
	shard *shard
	kind  string
	key   record.Key
}

// foreignDeletes counts late deletes by other clients, by shard. After the flip the reverse sync
// writes to the same collection and also deletes. Its deletes leave tombstones of a later direction
// epoch and do not count.
func (e *Engine) foreignDeletes(ctx context.Context, late []lateDelete, notBefore record.Version) (map[*shard]int64, error) {
	foreign := map[*shard]int64{}
	if len(late) == 0 {
		return foreign, nil
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return nil, err
	}
	type name struct {
		kind string
		key  record.Key
	}
	ours := map[name]bool{}
	// Tombstones are read no older than the batch, so that a tombstone of the reverse sync is
	// visible.
	err = transform.Each(&e.sizes, late, func(run []lateDelete, bytes int) error {
		req := record.ReadRequest{Tokens: src, NotBefore: notBefore, Guards: true, Bytes: bytes}
		for _, l := range run {
			req.Select = append(req.Select, record.Selector{Kind: l.kind, Key: l.key})
		}
		snap, err := e.Source.Read(ctx, req)
		for _, r := range snap.Records {
			if err == nil && r.Guard.Epoch > e.cfg.Epoch {
				ours[name{r.Kind, r.Key}] = true
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read guards of late deletes: %w", err)
	}
	var passed []lateDelete
	for _, l := range late {
		if !ours[name{l.kind, l.key}] {
			foreign[l.shard]++
			passed = append(passed, l)
		}
	}
	if len(passed) > 0 { // one line, since one command may have deleted thousands
		e.Log.Warn("deletes passed the fence", zap.Int("count", len(passed)), zap.String("kind", passed[0].kind), zap.Stringer("such as", passed[0].key))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// All late deletes are restored, not only foreign ones: a guard of the reverse sync does not
	// show that it also made this delete.
	for _, l := range late {
		if e.deletedSize += len(l.key) + lateDeleteSize; e.deletedSize > mostDeleted {
			break
		}
		e.deleted = append(e.deleted, l)
		l.shard.deleted++
	}
	e.announce()
	return foreign, nil
}

// mostDeleted bounds the bytes of late deletes kept for the next engine, which may never start.
// Late deletes beyond it are only counted. Each has lateDeleteSize bytes besides its key.
const (
	mostDeleted    = 16 << 20
	lateDeleteSize = 100
)

// restoreDeleted makes the next engine copy records again that late deletes removed from its
// target. The active namespace still has them, and a rollback needs them.
func (e *Engine) restoreDeleted(ctx context.Context) error {
	for {
		var next *Engine
		var late []lateDelete
		err := e.await(ctx, func() bool {
			next, late = e.next, e.deleted
			return next != nil && next.Direction.To() == e.Direction.From() && len(late) > 0
		})
		if err != nil {
			return err
		}
		// Without its plan the next engine does not know how old its reads may be.
		if err := next.await(ctx, func() bool { return !next.plan.Start.IsZero() }); err != nil {
			return err
		}
		ids := map[transform.GroupID]bool{}
		for _, l := range late {
			// The next engine never wrote a record without a group.
			if id, ok, err := next.Direction.GroupOfTarget(l.kind, l.key); ok && err == nil {
				ids[id] = true
			}
		}
		if err := next.copyAgain(ctx, slices.Collect(maps.Keys(ids))); err != nil && !errors.Is(err, errOver) {
			return fmt.Errorf("restore late deletes: %w", err)
		}
		e.mu.Lock()
		// The stream may have added late deletes meanwhile.
		if e.deleted = e.deleted[len(late):]; len(e.deleted) == 0 {
			e.deleted, e.deletedSize = nil, 0
		}
		for _, l := range late {
			l.shard.restored()
		}
		e.mu.Unlock()
	}
}

// copyAgain writes groups whose records others have deleted from the target. The guards of this
// engine's own writes outlive the records. The read is therefore not before a position taken now,
// and the write also replaces a guard of its own version. Otherwise a record that this engine has
// just written would count as current, and stay deleted.
func (e *Engine) copyAgain(ctx context.Context, ids []transform.GroupID) error {
	var now record.Position
	err := e.persist(ctx, "restore late deletes", func() (err error) {
		now, err = e.Source.Position(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return e.bring(ctx, ids, now.At, forRepair)
}

// restored notes that a late delete was undone. Until all late deletes of the shard are undone, the
// stored position stays before them, so that a new owner meets them again. Engine.mu is held.
func (s *shard) restored() {
	if s.deleted--; s.deleted == 0 {
		s.moveCompared()
	}
}
