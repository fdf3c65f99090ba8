package verify

import (
	"context"

	"dbcontroller.dev/transform"
)

// Each resolves groups as the engine does, and shows what each comes to; nothing is written.
// What cannot be migrated is shown with its Failed, and the rest of its component again
// without them. A component may be shown for more than the groups that were asked for.
func (c *Comparer) Each(ctx context.Context, src, dst transform.View, ids []transform.GroupID, show func(*transform.Component) error) error {
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

// differing returns those of ids that do not hold what they should, or cannot be transformed
// at all. With blame a target record is named by a source record that it was made of, if
// there is any: that is what people look for.
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
			if !asked[id] {
				continue
			}
			d := transform.Difference{ID: id, Source: comp.Source(id), Failed: len(comp.Failed) > 0, What: comp.What()}
			if blame {
				d.ID = comp.Blame(id)
			}
			differ = append(differ, d)
		}
		return nil
	})
	return differ, err
}
