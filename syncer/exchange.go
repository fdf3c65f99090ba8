package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// This file is about groups that exchange unique values. At the source they did so in one
// transaction, or one after the other. Here they are in several batches, shards or
// controllers, or too large to be read together, so that each of them alone is refused: its
// value is still in the record that gives it up. So what holds the value is brought along,
// in one write, until nothing new is in the way. A group is parked only if its value is held
// by a record that keeps it.

const (
	// exchangeRounds bounds how long a ring of groups is followed from one to the next.
	exchangeRounds = 50
	// exchangeGroups bounds how many groups are brought together.
	exchangeGroups = 500
	// exchangeSteps bounds how many steps the rings of all refused groups of a run are followed
	// together: members of one large ring would each follow it for exchangeRounds. The first step
	// of each is not counted.
	exchangeSteps = 100
)

// errExchange is why groups that exchange values are parked although none of them is wrong.
var errExchange = fmt.Errorf("it exchanges unique values with other records, and together they are more than %d records or %d bytes, which cannot be written at once: give one of them another value first, then the others theirs", exchangeGroups, transform.GroupBytes)

// errLongRing is the same for a ring that is followed from one group to the next for too long.
var errLongRing = fmt.Errorf("it exchanges unique values with other records in a ring of more than %d: give one of them another value first, then the others theirs", exchangeRounds)

// errManyRings is why a group is parked whose ring was not followed to its end. Parked groups are
// tried again, a hundred at a time.
var errManyRings = errors.New("it exchanges unique values with other records, and more of them are refused at once than can be followed: it is tried again; or give one of them another value first, then the others theirs")

// exchange brings the groups that a unique index refused, with those that hold their values:
// first all of them together, which is what exchanges of small groups need, however many
// shards a ring goes through, and then each with its own ring. What is refused even so fails, each group for its own reason. A group
// that is brought along for another one's sake does not.
func (e *Engine) exchange(ctx context.Context, b *bringing) error {
	refused, at := b.blocked, b.at
	set := map[transform.GroupID]bool{}
	for id := range refused {
		set[id] = true
	}
	blocked := refused
	for round := range exchangeRounds {
		if grown := e.addHolders(set, blocked); !grown && (round > 0 || len(set) == 1) {
			break
		}
		tried, err := e.attempt(ctx, set, b)
		if err != nil {
			return err
		}
		if tried == nil {
			break
		}
		settle(refused, set, tried)
		if blocked = tried; len(blocked) == 0 {
			break
		}
	}
	for len(refused) > 0 {
		first := nextRing(refused, e.rings.Add(1))
		why, err := e.exchangeOne(ctx, first, refused, b)
		if err != nil {
			return err
		}
		delete(refused, first)
		if why == nil {
			continue
		}
		if b.at.Compare(at) > 0 {
			at = b.at
		}
		if err := e.fail(ctx, transform.Failure{Unit: first, Err: why}, at, b.asked); err != nil {
			return err
		}
	}
	return nil
}

// nextRing picks the group whose ring is followed next. The steps of a run may not suffice for all
// rings, and those that never come through are refused again in the next run. In a fixed order they
// would take all steps of each run, and the groups behind them would never come through.
func nextRing(refused map[transform.GroupID]transform.Failure, turn uint64) transform.GroupID {
	ids := slices.SortedFunc(maps.Keys(refused), compareIDs)
	return ids[turn%uint64(len(ids))]
}

// exchangeOne follows a ring from one group on. It returns the reason why the group cannot be
// migrated, nil if it was.
func (e *Engine) exchangeOne(ctx context.Context, first transform.GroupID, refused map[transform.GroupID]transform.Failure, b *bringing) (error, error) {
	why := refused[first].Err
	set := map[transform.GroupID]bool{first: true}
	blocked := map[transform.GroupID]transform.Failure{first: refused[first]}
	for round := range exchangeRounds {
		if !e.addHolders(set, blocked) {
			return why, nil // the holders keep the value, or nobody knows them
		}
		if round > 0 {
			if b.steps++; b.steps > exchangeSteps {
				return fmt.Errorf("%w: %w", errManyRings, why), nil
			}
		}
		tried, err := e.attempt(ctx, set, b)
		if err != nil {
			return nil, err
		}
		if tried == nil {
			return fmt.Errorf("%w: %w", errExchange, why), nil
		}
		settle(refused, set, tried)
		f, still := tried[first]
		if !still {
			return nil, nil
		}
		why, blocked = f.Err, tried
	}
	return fmt.Errorf("%w: %w", errLongRing, why), nil
}

// addHolders adds the groups that hold the values for which others are blocked, and reports
// whether there were any new ones.
func (e *Engine) addHolders(set map[transform.GroupID]bool, blocked map[transform.GroupID]transform.Failure) (grown bool) {
	for _, f := range blocked {
		kind, key, ok := record.HolderOf(f.Err)
		if !ok {
			continue
		}
		id, ok, err := e.Direction.GroupOfTarget(kind, key)
		if !ok || err != nil || set[id] {
			continue
		}
		set[id], grown = true, true
	}
	return grown
}

// attempt brings groups together. It returns those that a unique index refuses even so; nil
// means that they are too many to be written at once.
func (e *Engine) attempt(ctx context.Context, set map[transform.GroupID]bool, b *bringing) (map[transform.GroupID]transform.Failure, error) {
	if len(set) > exchangeGroups {
		return nil, nil
	}
	next := bringing{
		notBefore: b.notBefore, bytes: transform.GroupBytes, repair: b.repair, together: true, asked: b.asked,
		apart: map[transform.GroupID]bool{}, blocked: map[transform.GroupID]transform.Failure{},
	}
	err := e.bringAll(ctx, slices.SortedFunc(maps.Keys(set), compareIDs), &next)
	if errors.Is(err, record.ErrTooLarge) {
		return nil, nil
	}
	if next.at.Compare(b.at) > 0 {
		b.at = next.at
	}
	return next.blocked, err
}

// settle takes groups out of those that were refused that came through with others.
func settle(refused map[transform.GroupID]transform.Failure, set map[transform.GroupID]bool, tried map[transform.GroupID]transform.Failure) {
	for id := range refused {
		f, still := tried[id]
		switch {
		case still:
			refused[id] = f
		case set[id]:
			delete(refused, id)
		}
	}
}

func compareIDs(a, b transform.GroupID) int {
	return cmp.Or(cmp.Compare(a.Spec, b.Spec), cmp.Compare(a.Name, b.Name))
}
