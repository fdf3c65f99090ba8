package transform

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

// ErrDiffer is what is wrong with a group that differs although it was migrated since.
var ErrDiffer = errors.New("source and target differ after repair: is the transformer deterministic?")

// Transfer is the one way to migrate groups: what the source holds of them, transformed,
// with a tombstone for whatever else the target holds of them, under the expectation that
// nobody has changed what the write was made of. The engine and the proof write with it;
// the comparison and the loss report read the same components (Resolver) and write nothing.
type Transfer struct {
	Resolver
	// Write is Apply, or Load, of the target.
	Write func(context.Context, record.Batch) ([]record.Result, error)
	// Repair writes groups by name also over guards of their own version (record.Batch).
	Repair bool
	// Together writes all components of an attempt as one (record.Batch).
	Together bool
	// Done, if not nil, is called with components that the target holds now.
	Done func(context.Context, *Component) error
	// Fail is called with units that cannot be migrated as the source has them at a
	// version.
	Fail func(ctx context.Context, f Failure, at record.Version) error
}

// Once makes one attempt at groups, and returns those that have to be brought again: what
// they were made of has changed under the write, or they were too many for one reading.
// With an error all of them have to.
func (t Transfer) Once(ctx context.Context, ids []GroupID) (again []GroupID, err error) {
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
		if asked[id] && !t.Apart[id] {
			left = append(left, id)
		}
	}
	return left, nil
}

// Put writes components, and for those that failed what they wait for. It returns the units
// that have to be resolved again.
func (t Transfer) Put(ctx context.Context, cs []Component) (again []GroupID, err error) {
	batch := record.Batch{Tokens: t.To.Tokens, Epoch: t.Epoch, Repair: t.Repair, Together: t.Together}
	for i := range cs {
		// What one state of a group by content knows of its members, another one of the same
		// snapshot may not.
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
		res := record.Result{Outcome: record.Applied} // of nothing
		if len(c.Write.Writes) > 0 {
			res, results = results[0], results[1:]
		}
		switch {
		case res.Outcome == record.Changed, res.Outcome == record.Stale && c.ByContent():
			// Stale as well: what was newer may be another group of the component.
			again = append(again, c.Units...)
		case res.Outcome == record.Stale: // a later state of the group is there
		case len(c.Failed) > 0:
			if err := t.fail(ctx, c); err != nil {
				return nil, err
			}
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
	more, err := t.Put(ctx, refused)
	return append(again, more...), err
}

func (t Transfer) fail(ctx context.Context, c *Component) error {
	for _, f := range c.Failed {
		if t.Apart != nil && c.ByContent() {
			t.Apart[f.Unit] = true
		}
		if err := t.Fail(ctx, f, c.Version); err != nil {
			return err
		}
	}
	return nil
}

// ErrChanging is what Until returns when none of the groups that are left gets through.
var ErrChanging = errors.New("the group keeps changing under the write: something else writes it in the target")

// transferTries is how often groups that somebody else is writing are read again at once
// without any of them getting through: one writer's success is another's second try.
const transferTries = 20

// Until makes attempts at groups until once leaves none of them. It returns those that are
// left with an error.
func Until(ids []GroupID, once func([]GroupID) ([]GroupID, error)) ([]GroupID, error) {
	for try := 0; len(ids) > 0; try++ {
		if try == transferTries {
			return ids, fmt.Errorf("%d groups: %w", len(ids), ErrChanging)
		}
		left, err := once(ids)
		if err != nil {
			return left, err
		}
		if len(left) < len(ids) {
			try = -1
		}
		ids = left
	}
	return nil, nil
}
