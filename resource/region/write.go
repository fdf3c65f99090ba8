package region

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Write makes all mutations of owned records or none. If one of them concerns a record of another
// region, it makes none, and the error has the reason refusal.NotOwner. A record that moves is refused
// with refusal.Moving.
func (s *Store) Write(ctx context.Context, ms []record.Mutation) error {
	// The caller set no condition that can fail by a move. So a conflict is resolved here.
	const attempts = 10
	for attempt := 1; ; attempt++ {
		out, added, err := s.settled(ctx, ms)
		if err != nil {
			return err
		}
		if len(out) == 0 {
			return nil
		}
		err = s.write(ctx, out)
		again := errors.Is(err, record.ErrMismatch) || errors.Is(err, record.ErrExists) || errors.Is(err, record.ErrNotFound)
		if !added || attempt == attempts || !again {
			return err
		}
	}
}

// settled returns the mutations as moves allow them. added reports that one has a condition that the
// caller did not set.
func (s *Store) settled(ctx context.Context, ms []record.Mutation) (out []record.Mutation, added bool, err error) {
	for _, m := range ms {
		kind, ok := s.kinds[m.Kind]
		if ok && kind.Move != "" && !m.Absent {
			some, one, err := s.underMove(ctx, kind, m)
			if err != nil {
				return nil, false, err
			}
			out, added = append(out, some...), added || one
			continue
		}
		if ok {
			if err := s.refuse(ctx, m); err != nil {
				return nil, false, err
			}
		}
		if ok && kind.Move != "" {
			if m.Doc, err = kind.WithMove(m.Doc, Move{}); err != nil {
				return nil, false, err
			}
		}
		out = append(out, m)
	}
	return out, added, nil
}

// write writes owned records, and finds out whether a failed condition means that a record is a copy.
func (s *Store) write(ctx context.Context, ms []record.Mutation) error {
	var unsure []record.Selector // writes that would succeed although there is a copy
	for _, m := range ms {
		// All other writes fail by themselves if the record is not owned.
		if _, ok := s.kinds[m.Kind]; ok && !m.Exists && m.Match == nil {
			unsure = append(unsure, record.Selector{Kind: m.Kind, Key: m.Key})
		}
	}
	if err := s.free(ctx, unsure, ms); err != nil {
		return err
	}
	err := s.data.Write(ctx, ms)
	if !errors.Is(err, record.ErrNotFound) && !errors.Is(err, record.ErrMismatch) {
		return err
	}
	// Perhaps the record is a copy.
	var all []record.Selector
	for _, m := range ms {
		if _, ok := s.kinds[m.Kind]; ok && (m.Exists || m.Match != nil) {
			all = append(all, record.Selector{Kind: m.Kind, Key: m.Key})
		}
	}
	away, _, _, looked := s.awayOf(ctx, all)
	switch {
	case looked != nil:
		return looked
	case away != nil:
		return s.refusal(ctx, *away)
	}
	return err
}

// refuse refuses a write whose document or name belongs to another region, for kinds without moves and
// for new records.
func (s *Store) refuse(ctx context.Context, m record.Mutation) error {
	name, ok := m.Key.Name()
	if !ok {
		return nil
	}
	kind := s.kinds[m.Kind]
	owner := kind.OwnerOf(name, m.Doc)
	switch {
	case owner == "" || owner == s.own:
		return nil
	// The name has the region, or the record is new.
	case kind.Collection != "" || m.Absent:
		return elsewhere(ctx, owner)
	}
	// A document of another region under this name: either a copy, or an attempt to give an owned
	// record away.
	away, _, owned, err := s.awayOf(ctx, []record.Selector{{Kind: m.Kind, Key: m.Key}})
	switch {
	case err != nil:
		return err
	// A record may name a region that it was never given to. Other changes of it are fine.
	case owned && m.Match != nil && m.Match.Path == "" && kind.OwnerOf(name, bson.Raw(m.Match.Value.Value)) == owner:
		return nil
	case owned:
		return notGiven(kind, owner)
	case away != nil:
		return s.refusal(ctx, *away)
	}
	return elsewhere(ctx, owner)
}

// free refuses creations and unconditional writes of names that have a copy.
func (s *Store) free(ctx context.Context, sels []record.Selector, ms []record.Mutation) error {
	away, of, _, err := s.awayOf(ctx, sels)
	if err != nil || away == nil {
		return err
	}
	for _, m := range ms {
		if name, _ := m.Key.Name(); m.Absent && of == (id{m.Kind, name}) {
			return fmt.Errorf("%s %s: %w", m.Kind, name, record.ErrExists)
		}
	}
	return s.refusal(ctx, *away)
}

// awayOf returns the first of these records that exists and is not owned. owned reports that all of
// those that exist are owned.
func (s *Store) awayOf(ctx context.Context, sels []record.Selector) (away *found, of id, owned bool, err error) {
	if len(sels) == 0 {
		return nil, id{}, false, nil
	}
	all := append(s.copiesOf(sels, func(string) bool { return true }), sels...)
	recs, err := s.selectData(ctx, all, false)
	if err != nil {
		return nil, id{}, false, err
	}
	best, order := s.best(recs)
	for _, of := range order {
		if f := best[of]; !f.owned() {
			return &f, of, false, nil
		}
	}
	return nil, id{}, len(best) > 0, nil
}
