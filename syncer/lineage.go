package syncer

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// hasContent reports whether a direction has groups by content.
func hasContent(d transform.Direction) bool {
	return slices.ContainsFunc(d.TargetKinds(), func(k record.KindSpec) bool { return transform.IsLineage(k.Name) })
}

// byContent reports whether an id is a unit of a group by content. The Resolver has yet to find its
// groups.
func (e *Engine) byContent(id transform.GroupID) bool {
	return e.lineage && id.Spec >= 0 && e.Direction.LineageKind(id.Spec) != ""
}

// split separates groups by name from units. It is free of cost in a direction without groups by
// content.
func (e *Engine) split(ids []transform.GroupID) (named, units []transform.GroupID) {
	if !e.lineage {
		return ids, nil
	}
	return transform.Split(e.Direction, ids)
}

// copiedEverywhere reports whether the ranges of all shards are copied, on any controller. Before
// that a group by content may lack members. A target record without a source may belong to a group
// that is not copied yet. Only housekeeping calls it.
func (e *Engine) copiedEverywhere(ctx context.Context) (bool, error) {
	for n := range e.cfg.Ring {
		// A copied shard stays copied, so each checkpoint is loaded until it is done and no more.
		if e.elsewhere[n] {
			continue
		}
		e.mu.Lock()
		s, names := e.shards[n], e.plan.names(n, e.cfg.Ring)
		copied := s != nil && len(s.todo) == 0
		e.mu.Unlock()
		if copied {
			continue
		}
		if s != nil {
			return false, nil
		}
		c, _, err := e.Journal.LoadCheckpoint(ctx, e.key, n)
		if err != nil {
			return false, fmt.Errorf("checkpoint of shard %d: %w", n, err)
		}
		if len(c.done(names)) < len(names) {
			return false, nil
		}
		e.elsewhere[n] = true
	}
	return true, nil
}
