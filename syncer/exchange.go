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

// This file migrates groups that exchange unique values. The source exchanged them in one
// transaction or one after the other. In the target, the groups may be in different batches, shards
// or controllers, or be too large for one read. Each of them alone is refused, since another group
// still holds its value. So the engine writes a group together with the holders of its values, and
// adds holders until none is left. A group is parked only if the holder keeps the value.

const (
	// exchangeRounds is the maximum length of a ring of groups to follow.
	exchangeRounds = 50
	// exchangeGroups is the maximum number of groups written together.
	exchangeGroups = 500
	// exchangeSteps bounds the steps for the rings of all refused groups of a run. Without it each
	// member of a large ring would follow the ring for exchangeRounds. The first step of each group
	// is free.
	exchangeSteps = 100
)

// errExchange is the reason for parking groups that exchange values and are too large together.
var errExchange = fmt.Errorf("it exchanges unique values with other records, and together they are more than %d records or %d bytes, which cannot be written at once: give one of them another value first, then the others theirs", exchangeGroups, transform.GroupBytes)

// errLongRing is the reason for parking a group in a ring longer than exchangeRounds.
var errLongRing = fmt.Errorf("it exchanges unique values with other records in a ring of more than %d: give one of them another value first, then the others theirs", exchangeRounds)

// errManyRings is the reason for parking a group whose ring was not followed to its end. Parked
// groups are retried, a hundred at a time.
var errManyRings = errors.New("it exchanges unique values with other records, and more of them are refused at once than can be followed: it is tried again; or give one of them another value first, then the others theirs")

// exchange migrates groups that a unique index refused, together with the holders of their values.
// It first tries all of them in one write, which resolves exchanges of small groups through any
// number of shards. Then it tries each remaining group with its own ring. A group that is still
// refused fails for its own reason. A holder that was only added for another group does not fail.
func (e *Engine) exchange(ctx context.Context, b *bringing) error {
	refused, at := b.blocked, b.at
	set := map[transform.GroupID]bool{}
	for id := range refused {
		set[id] = true
	}
	blocked := refused
	for round := range exchangeRounds {
		// In the first round the refused groups may hold each other's values.
		if grown := e.addHolders(set, blocked); !grown && (round > 0 || len(set) == 1) {
			break
		}
		tried, err := e.attempt(ctx, set, b)
		if err != nil {
			return err
		}
		if tried == nil { // too many for one write; follow single rings below
			break
		}
		settle(refused, set, tried)
		if blocked = tried; len(blocked) == 0 {
			break
		}
	}
	// One group with a real conflict has made the common write fail for all of them.
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
		// The entry must not be older than the state that was refused.
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
// rings, and unsolvable groups return in each run. In a fixed order they would use up all steps,
// and the groups behind them would never be tried.
func nextRing(refused map[transform.GroupID]transform.Failure, turn uint64) transform.GroupID {
	ids := slices.SortedFunc(maps.Keys(refused), compareIDs)
	return ids[turn%uint64(len(ids))]
}

// exchangeOne follows the ring of one group. why is the reason if the group cannot be migrated, nil
// if it was. The second error is an error of the work itself.
func (e *Engine) exchangeOne(ctx context.Context, first transform.GroupID, refused map[transform.GroupID]transform.Failure, b *bringing) (error, error) {
	why := refused[first].Err
	set := map[transform.GroupID]bool{first: true}
	blocked := map[transform.GroupID]transform.Failure{first: refused[first]}
	for round := range exchangeRounds {
		if !e.addHolders(set, blocked) {
			return why, nil // the holders keep the value, or are unknown
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
		// Other members of the ring may have come through with this one.
		settle(refused, set, tried)
		f, still := tried[first]
		if !still {
			return nil, nil
		}
		why, blocked = f.Err, tried
	}
	return fmt.Errorf("%w: %w", errLongRing, why), nil
}

// addHolders adds the groups that hold the values of blocked groups, and reports whether any is
// new.
func (e *Engine) addHolders(set map[transform.GroupID]bool, blocked map[transform.GroupID]transform.Failure) (grown bool) {
	for _, f := range blocked {
		kind, key, ok := record.HolderOf(f.Err)
		if !ok {
			continue
		}
		id, ok, err := e.Direction.GroupOfTarget(kind, key)
		// A holder that is no record of this direction cannot be moved.
		if !ok || err != nil || set[id] {
			continue
		}
		set[id], grown = true, true
	}
	return grown
}

// attempt writes groups together and returns those that a unique index still refuses. nil means
// that they do not fit into one write.
func (e *Engine) attempt(ctx context.Context, set map[transform.GroupID]bool, b *bringing) (map[transform.GroupID]transform.Failure, error) {
	if len(set) > exchangeGroups {
		return nil, nil
	}
	next := bringing{
		notBefore: b.notBefore, bytes: transform.GroupBytes, repair: b.repair, doubtful: b.doubtful, together: true, asked: b.asked,
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

// settle updates refused: it removes groups that came through and records the latest reason of the
// others.
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
