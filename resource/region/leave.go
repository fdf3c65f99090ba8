package region

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/record"
)

// movesMost is the largest document that can move, in bytes. Each step of a move compares the whole
// document, and a command has it twice.
const movesMost = 4 << 20

// wholeMost is the largest total size of a compared document and its replacement.
const wholeMost = 8 << 20

// underMove returns a write with a condition, so that it fails if a step of a move comes first. added
// reports that the caller had set none. A change of the region begins, changes or cancels a move.
func (s *Store) underMove(ctx context.Context, kind Kind, m record.Mutation) (out []record.Mutation, added bool, err error) {
	name, ok := m.Key.Name()
	if !ok {
		return []record.Mutation{m}, false, nil
	}
	var before bson.Raw
	if m.Match != nil && m.Match.Path == "" {
		before = m.Match.Value.Value // the record is this one, or the write fails
	} else {
		rec, err := s.data.Get(ctx, m.Kind, name)
		switch {
		case errors.Is(err, record.ErrNotFound) && m.Match == nil && !m.Exists:
			return s.underNothing(ctx, m)
		case errors.Is(err, record.ErrNotFound), err == nil && m.Match != nil && !m.Match.Holds(rec.Doc):
			return []record.Mutation{m}, false, nil // the write fails
		case err != nil:
			return nil, false, err
		}
		before, added = rec.Doc, m.Match == nil
		switch {
		case added:
			m.Match, m.Exists = kind.unmoved(before), false
		case len(before)+len(m.Doc) <= wholeMost:
			m.Match = record.MatchDoc(before)
		// The step that gives the record away does not change its revision, and a cancel may make it
		// larger. The id of the move stands for the content, which is frozen.
		case kind.MoveOf(before).Step == Leaving:
			m.Match = kind.unmoved(before)
			// Other large documents cannot move at the moment. A condition on the revision stays: the
			// begin of a move changes the revision.
		}
	}
	move := kind.MoveOf(before)
	if move.Step == Missing {
		m, err = s.decided(ctx, kind, name, move, m)
		return []record.Mutation{m}, added, err
	}
	if !move.Owns() {
		if err := s.notAway(ctx, m); err != nil {
			return nil, false, err
		}
		return []record.Mutation{m}, added, nil // it has changed meanwhile, so the write fails
	}
	// A delete also ends a move that this region can still cancel.
	var next Move
	if m.Doc != nil {
		if next, err = s.next(kind, name, move, before, m.Doc); err != nil {
			return nil, false, err
		}
	}
	if next != move {
		if err := s.settles(ctx, m.Kind, name, move); err != nil {
			return nil, false, err
		}
	}
	if m.Doc != nil {
		if m.Doc, err = kind.WithMove(m.Doc, next); err != nil {
			return nil, false, err
		}
	}
	return []record.Mutation{m}, added, nil
}

// settles refuses the end of the state of a move while the other region's part in it is not known to be
// over. Without this, that region could not tell the end from a loss.
func (s *Store) settles(ctx context.Context, kind, name string, move Move) error {
	if move.Step == "" || !slices.Contains(s.copies, move.Region) {
		return nil
	}
	rec, err := s.data.Get(ctx, CopiesKind(kind), CopyKey(move.Region, name))
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	theirs := s.kinds[kind].MoveOf(rec.Doc)
	switch {
	case theirs.Region != s.own || theirs.ID != move.ID:
		return nil
	case move.Step == Arrived && (theirs.Step == Left || theirs.Step == Missing) && theirs.Nonce == move.Nonce:
		return moving(s.own)
	case move.Step == Leaving && theirs.Step == Arrived: // this region has an older state again
		return moving(move.Region)
	}
	return nil
}

// decided returns the write by which a client deletes a record that its new owner has lost, or takes it
// back. All other writes are refused.
func (s *Store) decided(ctx context.Context, kind Kind, name string, move Move, m record.Mutation) (record.Mutation, error) {
	switch {
	case s.alone: // background work does not see it
		return m, missing(s.own, move.Region)
	case m.Doc == nil:
		return m, nil
	case kind.OwnerOf(name, m.Doc) != s.own:
		return m, missing(s.own, move.Region)
	}
	away, _, _, err := s.awayOf(ctx, []record.Selector{{Kind: m.Kind, Key: m.Key}})
	if err != nil {
		return m, err
	}
	if away != nil && away.copied {
		return m, s.refusal(ctx, *away) // another region owns one of that name
	}
	m.Doc, err = kind.WithMove(m.Doc, Move{})
	return m, err
}

// unmoved returns the condition that a record has the state of a move that doc has.
func (k Kind) unmoved(doc bson.Raw) *record.Match {
	value := doc.Lookup(k.Move)
	if value.Type == 0 {
		value.Type = bson.TypeNull
	}
	return &record.Match{Path: k.Move, Value: value}
}

// underNothing returns a write without a condition for a name without a record. Without the condition
// that it adds, the write could remove a reservation.
func (s *Store) underNothing(ctx context.Context, m record.Mutation) ([]record.Mutation, bool, error) {
	if err := s.notAway(ctx, m); err != nil {
		return nil, false, err
	}
	if m.Doc == nil {
		return nil, false, nil // a delete of an absent record succeeds
	}
	name, _ := m.Key.Name()
	if owner := s.kinds[m.Kind].OwnerOf(name, m.Doc); owner != "" && owner != s.own {
		return nil, false, elsewhere(ctx, owner)
	}
	m.Absent = true
	return []record.Mutation{m}, true, nil
}

// notAway returns the refusal of a write if this region does not own the record.
func (s *Store) notAway(ctx context.Context, m record.Mutation) error {
	away, _, _, err := s.awayOf(ctx, []record.Selector{{Kind: m.Kind, Key: m.Key}})
	if err == nil && away != nil {
		return s.refusal(ctx, *away)
	}
	return err
}

// next returns the state of the move in the next document of an owned record.
func (s *Store) next(kind Kind, name string, move Move, before, doc bson.Raw) (Move, error) {
	to, was := kind.OwnerOf(name, doc), kind.OwnerOf(name, before)
	leaving := move.Step == Leaving
	switch {
	case leaving && to == s.own:
		return Move{}, nil
	case leaving && (to == move.Region || to == ""):
		return move, moving(move.Region)
	case to == s.own || to == "" || to == was:
		return move, nil
	case s.moves == "" || !slices.Contains(s.others, to):
		return move, notGiven(kind, to)
	case len(doc) > movesMost:
		return move, listing.Invalid(kind.Field, "is %q: a record of more than %d MiB cannot move to another region", to, movesMost>>20)
	}
	return Move{Step: Leaving, Region: to, ID: NewID(s.moves, time.Now())}, nil
}

// notGiven returns the error for a write that would give a record to a region.
func notGiven(kind Kind, to string) error {
	if kind.Move != "" {
		return listing.Invalid(kind.Field, "is %q, which is no region that this one can move records to", to)
	}
	return listing.Invalid(kind.Field, "is %q: a write cannot give a record to another region", to)
}
