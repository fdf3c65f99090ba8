package verify

import (
	"context"
	"fmt"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Intruded lists possible changes of a target by other programs.
type Intruded struct {
	Groups  []transform.GroupID
	Orphans []transform.Orphan // records without a group
}

// Names returns up to ten of the names, for operators.
func (in Intruded) Names(c *Comparer) (names []string) {
	for _, id := range in.Groups {
		names = append(names, c.nameOf(id).Key)
	}
	for _, o := range in.Orphans {
		names = append(names, fmt.Sprintf("%s %s (in the target alone)", o.Kind, o.Key))
	}
	return names[:min(mostExamples, len(names))]
}

// Intruded reads the target's changes from a position up to the seal of each kind. It returns the
// groups with a change that no Apply is known to have written. sealed holds, by kind, the names or
// marks that a seal may have.
func (c *Comparer) Intruded(ctx context.Context, target record.Watcher, from record.Position, toks record.Tokens, sealed map[string][]string) (in Intruded, err error) {
	// open holds the kinds without a seal so far; the stream ends when it is empty.
	watched, open := record.Tokens{}, map[string]bool{}
	for _, k := range c.dir.TargetKinds() {
		// Only kinds that the direction writes can be intruded on; lineage is the engine's own.
		if tok, ok := toks[k.Name]; ok && transform.SyncsTo(c.dir, k.Name) && !transform.IsLineage(k.Name) {
			watched[k.Name], open[k.Name] = tok, true
		}
	}
	if len(watched) == 0 {
		return in, nil
	}
	stream, err := target.Follow(ctx, from, watched)
	if err != nil {
		return in, fmt.Errorf("changes of the target: %w", err)
	}
	defer closing.Bounded(ctx, stream.Close) //nolint:errcheck // only read
	seen := map[transform.GroupID]bool{}
	for len(open) > 0 {
		b, err := stream.Next(ctx)
		if err != nil {
			return in, fmt.Errorf("changes of the target: %w", err)
		}
		for _, change := range b.Changes {
			// A marker ends a kind only if it is the awaited seal; others come from earlier
			// renames.
			if change.Marker != "" {
				for _, name := range sealed[change.Kind] {
					if name == change.Marker {
						delete(open, change.Kind)
					}
				}
				continue
			}
			id, ok, err := c.dir.GroupOfTarget(change.Kind, change.Key)
			switch {
			case !ok || change.Origin == record.AppliedChange || seen[id]:
			// The key has no group. A deleted orphan leaves nothing to report.
			case err != nil && !change.Delete:
				in.Orphans = append(in.Orphans, transform.Orphan{Kind: change.Kind, Key: change.Key, Err: err})
			case err == nil:
				seen[id] = true
				in.Groups = append(in.Groups, id)
			}
		}
	}
	return in, nil
}
