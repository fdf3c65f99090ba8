package syncer

import (
	"context"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// orphanSpec marks the parked entry of a target record that belongs to no group.
const orphanSpec = -3

// parkOrphans parks orphans, target records that belong to no group. No migration replaces or
// removes them, and the switch must not activate them unnoticed.
func (e *Engine) parkOrphans(ctx context.Context, orphans []transform.Orphan) error {
	for _, s := range orphans {
		id := ungroupedKey{kind: s.Kind, key: s.Key}.id()
		// A key that is too long keeps longSpec: its digest cannot be looked up again.
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

// retryOrphans unparks orphans that the target no longer has.
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
