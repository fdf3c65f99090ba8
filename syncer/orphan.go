package syncer

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// orphanSpec marks the parked entry of a target record that belongs to no group. (-2 is
// OverflowSpec.)
const orphanSpec = -3

// parkOrphans parks orphans, target records that the comparison found to belong to no group:
// nothing that is migrated replaces or removes them, and they must not go with the switch
// unseen.
func (e *Engine) parkOrphans(ctx context.Context, orphans []transform.Orphan) error {
	for _, s := range orphans {
		id := ungroupedKey{kind: s.Kind, key: s.Key}.id()
		if id.Spec == noSpec {
			id.Spec = orphanSpec
		}
		why := fmt.Errorf("it is in %s alone and is no record of this transformation (%w): remove it there, or waive it", e.Direction.To(), s.Err)
		if err := e.parkAs(ctx, id, s.Kind, s.Key.String(), record.Version{}, why); err != nil {
			return err
		}
	}
	return nil
}

// retryOrphans unparks orphans that are gone.
func (e *Engine) retryOrphans(ctx context.Context, ids []transform.GroupID) error {
	if len(ids) == 0 {
		return nil
	}
	dst, err := e.targetView(ctx)
	if err != nil {
		return err
	}
	err = e.lookFor(ctx, e.Target, dst, selectNamed(ids), func(i int, there bool, _ record.Version) error {
		if there {
			return nil
		}
		return e.unpark(ctx, ids[i], record.Version{})
	})
	if err != nil {
		return fmt.Errorf("read parked orphans: %w", err)
	}
	return nil
}
