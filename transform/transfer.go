package transform

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

// ErrDiffer means that a group still differs after it was migrated again.
var ErrDiffer = errors.New("source and target differ after repair: is the transformer deterministic?")

// Transfer is the only code that migrates groups. It writes the transformed source records, and
// tombstones for the target's other records of the group. Each write expects that everything it was
// computed from is unchanged. The engine and the verifier write with it. Comparisons and the loss
// report read the same components (Resolver) and write nothing.
type Transfer struct {
	Resolver
	// Write is the target's Apply or Load.
	Write func(context.Context, record.Batch) ([]record.Result, error)
	// Repair also overwrites groups by name whose guards have the same version (record.Batch).
	Repair bool
	// Together writes all components of an attempt in one transaction (record.Batch).
	Together bool
	// Done, if not nil, is called for each component that the target now holds.
	Done func(context.Context, *Component) error
	// Fail is called for each unit that cannot be migrated in its source state at a version.
	Fail func(ctx context.Context, f Failure, at record.Version) error
}

// Once makes one attempt at groups. It returns the groups to retry: the write found a change in its
// input, or one read had no room for them. With an error it returns all of them.
func (t Transfer) Once(ctx context.Context, ids []GroupID) (again []GroupID, err error) {
	// Return all ids with an error: nothing is known about any of them.
	cs, left, err := t.Resolve(ctx, ids)
	if err != nil {
		return ids, err
	}
	changed, err := t.Put(ctx, cs)
	if err != nil {
		return ids, err
	}
	if len(changed) == 0 {
		return left, nil
	}
	asked := make(map[GroupID]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	for _, id := range changed {
		// Put also returns units that others brought into a component. Their own changes migrate
		// them.
		if asked[id] && !t.Apart[id] {
			left = append(left, id)
		}
	}
	return left, nil
}

// Put writes components. For failed components it only writes which groups they wait for. It
// returns the units to resolve again.
func (t Transfer) Put(ctx context.Context, cs []Component) (again []GroupID, err error) {
	// One batch for all components. The backend reports a result for each.
	batch := record.Batch{Tokens: t.To.Tokens, Epoch: t.Epoch, Repair: t.Repair, Together: t.Together}
	for i := range cs {
		// Equal versions do not imply equal content here: two resolutions of one snapshot may know
		// different members.
		batch.Repair = batch.Repair && !cs[i].ByContent()
		if len(cs[i].Write.Writes) > 0 {
			batch.Groups = append(batch.Groups, cs[i].Write)
		}
	}
	var results []record.Result
	if len(batch.Groups) > 0 {
		if results, err = t.Write(ctx, batch); err != nil {
			return nil, err
		}
	}
	var refused []Component
	for i := range cs {
		c := &cs[i]
		res := record.Result{Outcome: record.Applied} // an empty write counts as applied
		if len(c.Write.Writes) > 0 {
			// Results are in the order of the batch, without the empty writes.
			res, results = results[0], results[1:]
		}
		switch {
		case res.Outcome == record.Changed, res.Outcome == record.Stale && c.ByContent():
			// Stale too: the newer state may belong to another group of the component.
			again = append(again, c.Units...)
		case res.Outcome == record.Stale: // the target has a later state of the group
		case len(c.Failed) > 0:
			if err := t.fail(ctx, c); err != nil {
				return nil, err
			}
			// The rest can be written once the failed units are apart.
			again = append(again, c.Rest()...)
		case res.Outcome == record.Refused:
			if err := res.Err; c.ByContent() {
				c.Refuse(fmt.Errorf("groups %s: %w", c.Write.Group, err))
			} else {
				c.Refuse(err)
			}
			refused = append(refused, *c)
		case res.Outcome != record.Applied:
			return nil, fmt.Errorf("apply: %v for group %q", res.Outcome, c.Write.Group)
		case t.Done != nil:
			if err := t.Done(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	if len(refused) == 0 {
		return again, nil
	}
	// Record for the refused components which groups their units wait for, and call Fail for them.
	more, err := t.Put(ctx, refused)
	return append(again, more...), err
}

func (t Transfer) fail(ctx context.Context, c *Component) error {
	for _, f := range c.Failed {
		// From now on other members of the group are resolved without this unit.
		if t.Apart != nil && c.ByContent() {
			t.Apart[f.Unit] = true
		}
		if err := t.Fail(ctx, f, c.Version); err != nil {
			return err
		}
	}
	return nil
}

// ErrChanging is returned by Until if none of the remaining groups gets through.
var ErrChanging = errors.New("the group keeps changing under the write: something else writes it in the target")

// transferTries limits the immediate retries in which no group gets through. Retries are normal:
// one writer's success makes another writer read again.
const transferTries = 20

// Until calls once with the remaining groups until none is left. once returns the groups to retry.
// Until stops at an error of once, and returns ErrChanging if several calls in a row complete no
// group. With an error it returns the remaining groups.
func Until(ids []GroupID, once func([]GroupID) ([]GroupID, error)) ([]GroupID, error) {
	for try := 0; len(ids) > 0; try++ {
		if try == transferTries {
			return ids, fmt.Errorf("%d groups: %w", len(ids), ErrChanging)
		}
		left, err := once(ids)
		if err != nil {
			return left, err
		}
		// Progress resets the limit; it only counts attempts without any.
		if len(left) < len(ids) {
			try = -1
		}
		ids = left
	}
	return nil, nil
}
