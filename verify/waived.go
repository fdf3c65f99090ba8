package verify

import (
	"context"
	"fmt"

	"dbcontroller.dev/transform"
)

// Waived is what somebody let a switch go on without. Where it differs that is known, and is
// counted apart from what nobody has looked at.
type Waived struct {
	Groups  map[transform.GroupID]bool
	Orphans map[Name]bool
	// Kinds are those of which more was waived than Groups lists. A group of them counts as
	// waived if it cannot be transformed; any other one, which may be missing for another
	// reason, as different.
	Kinds map[string]bool
	// LeftKinds are kinds of the target of which the switch that left it waived more than Groups
	// lists. A group that the target alone holds counts as waived if Back, the direction that the
	// switch ended, cannot transform it: no list says which groups were left behind.
	LeftKinds map[string]bool
	Back      transform.Direction
}

// Name is what people find a group or a record by.
type Name struct{ Kind, Key string }

func (w Waived) group(d transform.Difference, name Name) bool {
	return w.Groups[d.ID] || d.Failed && w.Kinds[name.Kind]
}

// leftBehind returns those groups that the target alone holds and that cannot be brought back to the
// source, of the kinds of which more was waived than is listed. A group of which the source holds
// anything was not left behind: the target has not followed it.
func (c *Comparer) leftBehind(ctx context.Context, src, dst transform.View, w Waived, ds []transform.Difference) (map[transform.GroupID]bool, error) {
	var ids []transform.GroupID
	nothing := transform.SourceState(nil)
	for _, d := range ds {
		if sel := c.dir.TargetSelect(d.ID); d.Source == nothing && len(sel) > 0 && w.LeftKinds[sel[0].Kind] {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	back, err := New(c.target, c.source, w.Back).Groups(ctx, dst, src, ids)
	if err != nil {
		return nil, fmt.Errorf("what was left behind: %w", err)
	}
	left := map[transform.GroupID]bool{}
	for _, d := range back {
		if d.Failed {
			left[d.ID] = true
		}
	}
	return left, nil
}

// note counts what differs and is waived.
func (r *Report) note(name string) {
	r.Waived++
	if len(r.WaivedExamples) < mostExamples {
		r.WaivedExamples = append(r.WaivedExamples, name)
	}
}
