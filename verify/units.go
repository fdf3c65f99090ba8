package verify

import (
	"context"
	"slices"

	"dbcontroller/record"
	"dbcontroller/transform"
)

// units returns those of some units whose groups are not as the lineage says, or not as
// their members would be transformed, or cannot be transformed at all. It resolves them
// as the engine does and writes nothing. A target record is named by a source record that
// it was made of, if blame says so and there is any: that is what people look for.
func (c *Comparer) units(ctx context.Context, src, dst record.Tokens, ids []transform.GroupID, notBefore record.Version, blame bool) (differ []transform.GroupID, err error) {
	r := transform.Resolver{
		Direction: c.dir, Source: c.source, Target: c.target, SourceTokens: src, TargetTokens: dst,
		Apart: map[transform.GroupID]bool{},
	}
	asked := make(map[transform.GroupID]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	for len(ids) > 0 {
		cs, left, err := r.Resolve(ctx, ids, notBefore)
		if err != nil {
			return nil, err
		}
		for i := range cs {
			comp := &cs[i]
			if len(comp.Failed) == 0 && comp.Level {
				continue
			}
			rest := []transform.GroupID(nil)
			if len(comp.Failed) > 0 {
				rest = comp.Rest()
				for _, f := range comp.Failed {
					r.Apart[f.Unit] = true
				}
			}
			for _, id := range comp.Units {
				switch {
				case !asked[id]:
				case slices.Contains(rest, id):
					left = append(left, id)
				case blame:
					differ = append(differ, comp.Blame(id))
				default:
					differ = append(differ, id)
				}
			}
		}
		ids = left
	}
	return differ, nil
}

// split tells groups by name from units.
func (c *Comparer) split(ids []transform.GroupID) (groups, units []transform.GroupID) {
	if !slices.ContainsFunc(ids, c.byContent) {
		return ids, nil
	}
	for _, id := range ids {
		if c.byContent(id) {
			units = append(units, id)
		} else {
			groups = append(groups, id)
		}
	}
	return groups, units
}

func (c *Comparer) byContent(id transform.GroupID) bool { return c.dir.LineageKind(id.Spec) != "" }
