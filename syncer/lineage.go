package syncer

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// hasContent reports whether any groups of a direction go by content.
func hasContent(d transform.Direction) bool {
	return slices.ContainsFunc(d.TargetKinds(), func(k record.KindSpec) bool { return transform.IsLineage(k.Name) })
}

// byContent reports whether a group is a unit, whose real groups are yet to be found.
func (e *Engine) byContent(id transform.GroupID) bool {
	return e.lineage && id.Spec >= 0 && e.Direction.LineageKind(id.Spec) != ""
}

// split tells groups by name from units. Without groups by content it costs nothing.
func (e *Engine) split(ids []transform.GroupID) (groups, units []transform.GroupID) {
	if !e.lineage {
		return ids, nil
	}
	for _, id := range ids {
		if e.byContent(id) {
			units = append(units, id)
		} else {
			groups = append(groups, id)
		}
	}
	return groups, units
}

// unitWork is the bringing over of some units.
type unitWork struct {
	notBefore record.Version
	// copying: what fails only waits. In the middle of a copy groups are not complete, and
	// a group that fails for that is no error. The comparison after the copy meets each of
	// its records again, and parks.
	copying bool
	// left is what still has to be brought over, apart what has failed.
	left  []transform.GroupID
	apart map[transform.GroupID]bool
}

// syncUnits brings over the groups that units belong to, by their lineage and by their
// content.
func (e *Engine) syncUnits(ctx context.Context, ids []transform.GroupID, notBefore record.Version, copying bool) error {
	w := &unitWork{notBefore: notBefore, copying: copying, left: ids, apart: map[transform.GroupID]bool{}}
	return e.persist(ctx, "apply changes", func() error {
		for try := 0; len(w.left) > 0; try++ {
			if try == changedTries {
				return fmt.Errorf("groups of %d records keep changing under the write", len(w.left))
			}
			before := len(w.left)
			if err := e.unfenced(ctx, func() error { return e.syncUnitsOnce(ctx, w) }); err != nil {
				return err
			}
			if len(w.left) < before {
				try = -1 // one writer's success is another's second try
			}
		}
		return nil
	})
}

// syncUnitsOnce makes one attempt.
func (e *Engine) syncUnitsOnce(ctx context.Context, w *unitWork) error {
	if err := e.awaitApply(ctx); err != nil {
		return err
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return err
	}
	dst, err := e.targetTokens(ctx)
	if err != nil {
		return err
	}
	r := transform.Resolver{
		Direction: e.Direction, Source: e.Source, Target: e.Target, SourceTokens: src, TargetTokens: dst,
		Epoch: e.cfg.Epoch, Apart: w.apart,
	}
	cs, left, err := r.Resolve(ctx, w.left, w.notBefore)
	if err != nil {
		return err
	}
	asked := map[transform.GroupID]bool{}
	for _, id := range w.left {
		asked[id] = true
	}
	again, err := e.applyComponents(ctx, w, dst, cs)
	if err != nil {
		return err
	}
	for _, id := range again {
		if asked[id] && !w.apart[id] {
			left = append(left, id)
		}
	}
	w.left = left
	return nil
}

// applyComponents writes components, and for those that failed what they wait for. It
// returns the units that have to be resolved again.
func (e *Engine) applyComponents(ctx context.Context, w *unitWork, dst record.Tokens, cs []transform.Component) (again []transform.GroupID, err error) {
	batch := record.Batch{Tokens: dst, Epoch: e.cfg.Epoch}
	for i := range cs {
		if len(cs[i].Write.Writes) > 0 {
			batch.Groups = append(batch.Groups, cs[i].Write)
		}
	}
	var results []record.Result
	if len(batch.Groups) > 0 {
		if results, err = e.Target.Apply(ctx, batch); err != nil {
			return nil, err
		}
	}
	var refused []transform.Component
	for i := range cs {
		c := &cs[i]
		res := record.Result{Outcome: record.Applied} // of nothing
		if len(c.Write.Writes) > 0 {
			res, results = results[0], results[1:]
		}
		switch {
		case res.Outcome == record.Changed || res.Outcome == record.Stale:
			// Stale as well: what was newer may be another group of the component.
			again = append(again, c.Units...)
		case len(c.Failed) > 0:
			if err := e.failUnits(ctx, w, c); err != nil {
				return nil, err
			}
			again = append(again, c.Rest()...)
		case res.Outcome == record.Refused:
			c.Refuse(fmt.Errorf("groups %s: %w", c.Write.Group, res.Err))
			refused = append(refused, *c)
		case res.Outcome == record.Applied:
			if err := e.unparkUnits(ctx, c); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("apply: %v for groups %s", res.Outcome, c.Write.Group)
		}
	}
	if len(refused) == 0 {
		return again, nil
	}
	more, err := e.applyComponents(ctx, w, dst, refused)
	return append(again, more...), err
}

func (e *Engine) failUnits(ctx context.Context, w *unitWork, c *transform.Component) error {
	for _, f := range c.Failed {
		w.apart[f.Unit] = true
		if w.copying {
			continue
		}
		if err := e.park(ctx, f.Unit, c.Version, f.Err); err != nil {
			return err
		}
	}
	return nil
}

// unparkUnits unparks whatever a component that was written consists of: its members may
// have been parked by others.
func (e *Engine) unparkUnits(ctx context.Context, c *transform.Component) error {
	e.mu.Lock()
	parked := len(e.parked) > 0
	e.mu.Unlock()
	if !parked {
		return nil
	}
	for _, id := range append(c.Members(), c.Units...) {
		if err := e.unpark(ctx, id, c.Version); err != nil {
			return err
		}
	}
	return nil
}

// copiedEverywhere reports whether the ranges of all shards are copied, whoever owns
// them. Until then a group by content may lack members, and nobody can tell a target
// record that belongs to nothing from one whose group has not come yet.
func (e *Engine) copiedEverywhere(ctx context.Context) (bool, error) {
	for n := range e.cfg.Ring {
		e.mu.Lock()
		s, ranges := e.shards[n], e.rangesOf(n, e.plan, false)
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
		for _, t := range ranges {
			if !slices.Contains(c.Done, t.name) {
				return false, nil
			}
		}
	}
	return true, nil
}
