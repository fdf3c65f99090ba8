package verify

import (
	"context"
	"fmt"

	"dbcontroller.dev/transform"
)

// Waived lists the groups and orphans that an operator has accepted to leave behind. Reports count
// their differences apart from all others. The zero value waives nothing.
type Waived struct {
	Groups map[transform.GroupID]bool
	// Orphans are target records without a group.
	Orphans map[Name]bool
	// Kinds lists kinds with more waived groups than Groups can hold. A group of such a kind counts
	// as waived if it cannot be transformed. Any other difference may have another cause and is not
	// waived.
	Kinds map[string]bool
	// LeftKinds lists target kinds with more waived groups than Groups can hold, waived by the
	// switch that left the target. A group that only the target holds counts as waived if Back, the
	// direction that this switch ended, cannot transform it. No list shows which groups were left
	// behind.
	LeftKinds map[string]bool
	Back      transform.Direction
}

// Name is the kind and key under which operators find a group or a record.
type Name struct{ Kind, Key string }

// group reports whether a difference is waived.
func (w Waived) group(d transform.Difference, name Name) bool {
	return w.Groups[d.ID] || d.Failed && w.Kinds[name.Kind]
}

// leftBehind returns the groups of LeftKinds that only the target holds and that Back cannot
// transform. A group with any source record was not left behind: the target has failed to follow
// it.
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
	// Transform the other way: a failure there is the reason why the switch left the group behind.
	back, err := New(c.target, c.source, w.Back).Groups(ctx, dst, src, ids)
	if err != nil {
		return nil, fmt.Errorf("records that were left behind: %w", err)
	}
	left := map[transform.GroupID]bool{}
	for _, d := range back {
		if d.Failed {
			left[d.ID] = true
		}
	}
	return left, nil
}

// note counts a waived difference.
func (r *Report) note(name string) {
	r.Waived++
	if len(r.WaivedExamples) < mostExamples {
		r.WaivedExamples = append(r.WaivedExamples, name)
	}
}
