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

// lateDelete is a delete behind the fence of a fixed-name kind, whose class lets deletes
// through.
type lateDelete struct {
	shard *shard
	kind  string
	key   record.Key
}

// foreignDeletes counts, by shard, the late deletes that are somebody else's. After the
// flip the reverse sync is synced into the same collection, by deletes too; these have left a
// tombstone of a later direction epoch.
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
	if len(passed) > 0 { // together: one command may have deleted thousands
		e.Log.Warn("deletes passed the fence", zap.Int("count", len(passed)), zap.String("kind", passed[0].kind), zap.Stringer("such as", passed[0].key))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// All of them: that the reverse sync has written a record does not show who deleted it.
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

// mostDeleted is how many bytes of late deletes are kept for the next engine, which may never
// come; those beyond are counted only. One has lateDeleteSize in addition to its key.
const (
	mostDeleted    = 16 << 20
	lateDeleteSize = 100
)

// restoreDeleted lets the next engine copy again what was deleted late in its target. The
// namespace that is active holds it, and a rollback must find it.
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
		if err := next.await(ctx, func() bool { return !next.plan.Start.IsZero() }); err != nil {
			return err
		}
		ids := map[transform.GroupID]bool{}
		for _, l := range late {
			// A key without a group is of no record that the next engine has written.
			if id, ok, err := next.Direction.GroupOfTarget(l.kind, l.key); ok && err == nil {
				ids[id] = true
			}
		}
		if err := next.syncGroups(ctx, slices.Collect(maps.Keys(ids)), record.Version{}); err != nil && !errors.Is(err, errOver) {
			return fmt.Errorf("bring back what was deleted late: %w", err)
		}
		e.mu.Lock()
		if e.deleted = e.deleted[len(late):]; len(e.deleted) == 0 {
			e.deleted, e.deletedSize = nil, 0
		}
		for _, l := range late {
			l.shard.restored()
		}
		e.mu.Unlock()
	}
}

// restored notes that a late delete was undone. Until all of a shard are, the place that is
// stored stays before them, so that who takes the shard over meets them again. Engine.mu is
// held.
func (s *shard) restored() {
	if s.deleted--; s.deleted == 0 {
		s.moveCompared()
	}
}
