package comparison

import (
	"context"
	"fmt"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// waived returns the groups that operators waived for a version: in the direction that is synced,
// and after a switch also in the direction that the switch ended.
func (c *Comparison) waived(ctx context.Context, d upgradestate.Deployment, to string) (verify.Waived, error) {
	w, err := c.parked(ctx, d, true)
	if err != nil {
		return w, err
	}
	// After a switch, the ended direction's waivers are still in force for a comparison.
	key, ok := syncer.Left(d, to)
	if !ok {
		return w, nil
	}
	kept, err := c.planned(ctx, d)
	if err != nil {
		return w, err
	}
	list, err := c.Deployments.Parked(ctx, key, -1)
	if err != nil {
		return w, fmt.Errorf("list waived records: %w", err)
	}
	for _, p := range list {
		// The entry stands for more groups than the list holds, so the whole kind was waived. The
		// comparer finds its groups through the ended direction.
		if p.Waived && deployment.IsOverflow(p) {
			w.LeftKinds[p.Kind] = true
			if w.Back == nil {
				if w.Back, err = c.Registry.Direction(to, d.CurrentVersion); err != nil {
					return w, err
				}
			}
			continue
		}
		// Once the direction has a plan, it has the groups left behind itself, and drops those that
		// arrive. It never has records without a group.
		if !p.Waived || p.Kept || p.Spec >= 0 && kept {
			continue
		}
		if err := letGo(&w, p); err != nil {
			return w, err
		}
	}
	return w, nil
}

// parked returns the parked groups of the synced direction, either the waived or the other ones.
func (c *Comparison) parked(ctx context.Context, d upgradestate.Deployment, waived bool) (verify.Waived, error) {
	w := verify.Waived{Groups: map[transform.GroupID]bool{}, Orphans: map[verify.Name]bool{}, Kinds: map[string]bool{}, LeftKinds: map[string]bool{}}
	list, err := c.Deployments.ParkedOf(ctx, d)
	if err != nil {
		return w, err
	}
	for _, p := range list {
		if p.Waived != waived || p.Spec == syncer.UnreadableSpec {
			continue
		}
		if deployment.IsOverflow(p) {
			w.Kinds[p.Kind] = true
		} else if err := letGo(&w, p); err != nil {
			return w, err
		}
	}
	return w, nil
}

// planned reports whether the synced direction has a plan, so that it has begun.
func (c *Comparison) planned(ctx context.Context, d upgradestate.Deployment) (bool, error) {
	for _, dir := range deployment.Directions(d) {
		if _, found, err := c.Deployments.LoadPlan(ctx, dir); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

func letGo(w *verify.Waived, p syncer.Parked) error {
	if p.Spec < 0 {
		w.Orphans[verify.Name{Kind: p.Kind, Key: p.Key}] = true
		return nil
	}
	id, err := p.ID()
	if err != nil {
		return err
	}
	w.Groups[id] = true
	return nil
}
