package syncer

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// This file counts late deletes: deletes after the fence of a fixed-name kind, under a fence class
// that lets deletes through. Before the flip they are changes like others. After it the engine of
// the direction back takes them for foreign writes to its target, and restores the records. The
// engine of the ended direction only counts them, also while there is no way back.

// PassesDeletes reports whether the fence of a kind lets deletes through.
func PassesDeletes(k upgradestate.Kind) bool {
	return k.Fixed && k.Fence == string(record.FenceValidator)
}

// lateDelete is a delete after the fence.
type lateDelete struct {
	shard *shard
	kind  string
	key   record.Key
	// doubtful means that the stream does not show whether another client or the reverse sync made
	// the delete.
	doubtful bool
}

// sourceChanges opens the changes of the source. origins reports whether they show their origin.
// Before the flip no controller writes to the source, so origins do not matter. After it the reverse
// sync writes to the source, and only late deletes matter.
func (e *Engine) sourceChanges(ctx context.Context, from record.Position) (stream record.Stream, origins bool, err error) {
	e.mu.Lock()
	over := e.over()
	e.mu.Unlock()
	if !over {
		stream, err = e.Source.Watch(ctx, from, e.Direction.SourceKinds())
		return stream, false, err
	}
	toks, err := e.sourceTokens(ctx)
	if err != nil {
		return nil, true, err
	}
	source, _ := e.current().Namespace(e.Direction.From())
	for kind := range toks {
		if k, _ := source.Kind(kind); !PassesDeletes(k) {
			delete(toks, kind)
		}
	}
	stream, err = e.Source.Follow(ctx, from, toks)
	return stream, true, err
}

// foreignDeletes counts late deletes by other clients, by shard. After the flip the reverse sync
// writes to the same collection and also deletes. Its deletes leave tombstones of a later direction
// epoch and do not count.
func (e *Engine) foreignDeletes(ctx context.Context, late []lateDelete, notBefore record.Version) (map[*shard]int64, error) {
	foreign := map[*shard]int64{}
	var passed, doubtful []lateDelete
	for _, l := range late {
		if l.doubtful {
			doubtful = append(doubtful, l)
		} else {
			passed = append(passed, l)
		}
	}
	ours, err := e.deletedBack(ctx, doubtful, notBefore)
	if err != nil {
		return nil, err
	}
	for _, l := range doubtful {
		if !ours[recordName{l.kind, l.key}] {
			passed = append(passed, l)
		}
	}
	for _, l := range passed {
		foreign[l.shard]++
	}
	// One command may have deleted thousands, and an application may delete all the time.
	if n := e.counted("late deletes", len(passed)); n > 0 {
		e.Log.Warn("deletes passed the fence", zap.Int("count", n), zap.String("kind", passed[0].kind), zap.Stringer("such as", passed[0].key))
	}
	return foreign, nil
}

type recordName struct {
	kind string
	key  record.Key
}

// deletedBack returns the records whose guards show that the reverse sync has written them.
func (e *Engine) deletedBack(ctx context.Context, late []lateDelete, notBefore record.Version) (map[recordName]bool, error) {
	ours := map[recordName]bool{}
	if len(late) == 0 {
		return ours, nil
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return nil, err
	}
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
				ours[recordName{r.Kind, r.Key}] = true
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read guards of late deletes: %w", err)
	}
	return ours, nil
}
