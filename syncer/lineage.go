package syncer

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// hasContent reports whether any groups of a direction go by content.
func hasContent(d transform.Direction) bool {
	return slices.ContainsFunc(d.TargetKinds(), func(k record.KindSpec) bool { return transform.IsLineage(k.Name) })
}

// byContent reports whether a group is a unit, whose real groups are yet to be found.
func (e *Engine) byContent(id transform.GroupID) bool {
	return e.lineage && id.Spec >= 0 && e.Direction.LineageKind(id.Spec) != ""
}

// split separates groups by name from units. Without groups by content it costs nothing.
func (e *Engine) split(ids []transform.GroupID) (named, units []transform.GroupID) {
	if !e.lineage {
		return ids, nil
	}
	return transform.Split(e.Direction, ids)
}

// copiedEverywhere reports whether the ranges of all shards are copied, no matter which
// controller owns them. Until then a group by content may lack members, and nobody can tell
// a target record that belongs to nothing from one whose group has not come yet.
func (e *Engine) copiedEverywhere(ctx context.Context) (bool, error) {
	for n := range e.cfg.Ring {
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
