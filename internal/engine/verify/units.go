package verify

import (
	"context"

	"dbcontroller.dev/transform"
)

// Each resolves groups as the engine does and passes each resulting component to show. It writes
// nothing. A component with unmigratable units is shown with its Failed; the other units are then
// resolved and shown again without them. A component may contain more groups than ids.
func (c *Comparer) Each(ctx context.Context, src, dst transform.View, ids []transform.GroupID, show func(*transform.Component) error) error {
	// Groups by name are independent, so they can be read in runs of a bounded size.
	named, units := transform.Split(c.dir, ids)
	err := transform.Each(c.sizes, named, func(run []transform.GroupID, bytes int) error {
		cs, _, err := c.resolver(src.Within(bytes), dst.Within(bytes)).Resolve(ctx, run)
		if err != nil {
			return err
		}
		return each(cs, show)
	})
	if err != nil || len(units) == 0 {
		return err
	}
	// Groups by content depend on each other, so one resolver must see them all.
	r := c.resolver(src.Within(transform.ReadBytes), dst.Within(transform.ReadBytes))
	asked := make(map[transform.GroupID]bool, len(units))
	for _, id := range units {
		asked[id] = true
	}
	for len(units) > 0 {
		cs, left, err := r.Resolve(ctx, units)
		if err != nil {
			return err
		}
		for i := range cs {
			if len(cs[i].Failed) == 0 {
				continue
			}
			// Resolve the rest without the failed units. Otherwise one bad record would hide the
			// others' differences.
			for _, f := range cs[i].Failed {
				r.Apart[f.Unit] = true
			}
			for _, id := range cs[i].Rest() {
				if asked[id] {
					left = append(left, id)
				}
			}
		}
		if err := each(cs, show); err != nil {
			return err
		}
		units = left
	}
	return nil
}

func each(cs []transform.Component, show func(*transform.Component) error) error {
	for i := range cs {
		if err := show(&cs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Comparer) resolver(src, dst transform.View) transform.Resolver {
	return transform.Resolver{
		Direction: c.dir, Source: c.source, Target: c.target, From: src, To: dst, Compare: true,
		Apart: map[transform.GroupID]bool{},
	}
}

// differing returns the groups of ids that differ or cannot be transformed. With blame it names a
// target record by one of its source records, if any, because operators search for those.
func (c *Comparer) differing(ctx context.Context, src, dst transform.View, ids []transform.GroupID, blame bool) (differ []transform.Difference, err error) {
	asked := make(map[transform.GroupID]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	err = c.Each(ctx, src, dst, ids, func(comp *transform.Component) error {
		found := comp.Differ()
		if len(found) == 0 {
			return nil
		}
		for _, id := range found {
			// A component may bring in other groups. The caller counts those from their own pages.
			if !asked[id] {
				continue
			}
			d := transform.Difference{ID: id, Source: comp.Source(id), Failed: len(comp.Failed) > 0, What: comp.What()}
			if blame {
				// Operators search by source records.
				d.ID = comp.Blame(id)
			}
			differ = append(differ, d)
		}
		return nil
	})
	return differ, err
}
