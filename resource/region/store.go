package region

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// Store shows owned records and copies as one. Over makes it.
type Store struct {
	data   vrunner.Store
	own    string   // name of this region
	others []string // names of the regions whose copies are shown
	copies []string // names of the regions whose copies are up to date
	kinds  map[string]Kind
	moves  string // version of the data, whose records can move; empty: no move begins
	alone  bool   // shows records that this region owns, and nothing else
}

var (
	_ vrunner.Store        = (*Store)(nil)
	_ vrunner.BatchStore   = (*Store)(nil)
	_ vrunner.BoundedStore = (*Store)(nil)
	_ vrunner.IndexStore   = (*Store)(nil)
	_ vrunner.SearchStore  = (*Store)(nil)
)

// Over returns the data of a version in the region own, with the copies of other regions' records of
// the declared kinds. data must have the kinds of CopiesKind.
func Over(data vrunner.Store, own string, others []string, kinds map[string]Kind) *Store {
	return &Store{data: data, own: own, others: others, copies: others, kinds: kinds}
}

// Moving returns the store with moves: a change of the region in a record moves it, if its kind has
// Kind.Move. version is the name of the version of the data.
func (s *Store) Moving(version string) *Store {
	out := *s
	out.moves = version
	return &out
}

// Alone returns the store without copies, for the background work of a service. It shows and writes the
// records that this region owns at the moment, and no others.
func (s *Store) Alone() *Store {
	out := *s
	out.others, out.alone = nil, true
	return &out
}

// Region returns the name of this region.
func (s *Store) Region() string { return s.own }

// Own returns the name of the region of a store, for a service that sets it in new records. It is
// empty for a store without copies. A version that is shown over another one has that one's region.
func Own(store vrunner.Store) string {
	if s, ok := store.(interface{ Region() string }); ok {
		return s.Region()
	}
	return ""
}

// copied reports whether reads of a kind show copies.
func (s *Store) copied(ctx context.Context, kind string) bool {
	_, ok := s.kinds[kind]
	return ok && !onlyOwned(ctx)
}

// Get returns an owned record, or else a copy, or record.ErrNotFound.
func (s *Store) Get(ctx context.Context, kind, key string) (record.Record, error) {
	rec, err := s.data.Get(ctx, kind, key)
	away := err == nil && !s.kinds[kind].MoveOf(rec.Doc).Owns()
	if !s.copied(ctx, kind) || !errors.Is(err, record.ErrNotFound) && !away {
		return rec, err
	}
	// The record may have become an owned one after the first read, and its copy gone. One moment
	// for both shows it.
	recs, err := s.Select(ctx, []record.Selector{{Kind: kind, Key: record.StringKey(key)}}, false)
	switch {
	case err != nil:
		return record.Record{}, err
	case len(recs) == 0:
		return record.Record{}, fmt.Errorf("%s %s: %w", kind, key, record.ErrNotFound)
	}
	return recs[0], nil
}

// Select returns the selected records, all at one moment if the data can.
func (s *Store) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	all := s.copiesOf(sels, func(kind string) bool { return s.copied(ctx, kind) })
	recs, err := s.selectData(ctx, append(all, sels...), asList)
	if err != nil || onlyOwned(ctx) || len(all) == 0 && !s.alone {
		return recs, err
	}
	return s.shownOf(ctx, recs)
}

// copiesOf returns the selectors of the copies of all regions that can own a record.
func (s *Store) copiesOf(sels []record.Selector, of func(kind string) bool) (all []record.Selector) {
	for _, sel := range sels {
		name, ok := sel.Key.Name()
		if !ok || !of(sel.Kind) {
			continue
		}
		kind := s.kinds[sel.Kind]
		for _, region := range s.others {
			if kind.Collection != "" && !sel.Prefix && kind.OwnerOf(name, nil) != region {
				continue // its name belongs to another region
			}
			all = append(all, record.Selector{Kind: CopiesKind(sel.Kind), Key: record.StringKey(CopyKey(region, name)), Prefix: sel.Prefix})
		}
	}
	return all
}

// id identifies a record shown.
type id struct{ kind, name string }

// shownOf returns each record once: the owned one, or else the best of the others (rank).
func (s *Store) shownOf(ctx context.Context, recs []record.Record) ([]record.Record, error) {
	best, order := s.best(recs)
	var out []record.Record
	for _, of := range order {
		if s.alone && !best[of].owned() {
			continue
		}
		shown, err := s.shown(ctx, of.kind, best[of])
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	return out, nil
}

// found is a record under a name: in the collection of its kind, or a copy.
type found struct {
	record.Record
	copied bool
	move   Move
}

// owned reports whether this region owns the record.
func (f found) owned() bool { return !f.copied && f.move.Owns() }

// missing reports whether this region has given the record away, and the new owner has lost it. A write
// decides about it.
func (f found) missing() bool { return !f.copied && f.move.Step == Missing }

// rank orders the records of one name. The lowest one is shown.
//
// While a record moves, both regions have it. The one that owns it counts. A third region may see that
// the old owner has deleted it before it sees that the new one has it, so a reservation is shown
// before nothing is.
func (f found) rank() int {
	switch {
	case f.owned():
		return 0
	case f.copied && f.move.Owns():
		return 1
	case f.move.Step == Left, f.move.Step == Missing:
		return 2
	default:
		return 3
	}
}

// given reports whether a copy is of a record that its region has given to this one. The own record
// decides then. It was there before, as a reservation: without it, the record has arrived and was
// deleted, or has moved on.
func (s *Store) given(m Move) bool { return m.Step == Left && m.Region == s.own }

// best returns the record of the lowest rank for each name, and the names in the order of recs.
func (s *Store) best(recs []record.Record) (best map[id]found, order []id) {
	best = map[id]found{}
	for _, rec := range recs {
		f := found{Record: rec}
		key, _ := rec.Key.Name()
		of := id{rec.Kind, key}
		if kind, ok := s.ofCopies(rec.Kind); ok {
			_, name, named := OfCopy(key)
			if !named {
				continue
			}
			f.copied, of = true, id{kind, name}
		}
		f.move = s.kinds[of.kind].MoveOf(rec.Doc)
		if f.copied && s.given(f.move) {
			continue
		}
		have, there := best[of]
		if !there {
			order = append(order, of)
		}
		if !there || f.rank() < have.rank() {
			best[of] = f
		}
	}
	return best, order
}

// selectData selects of the data. Without the ability it reads the copies first: a record that moves
// here is owned before its copy goes.
func (s *Store) selectData(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	if several, ok := s.data.(vrunner.SelectStore); ok {
		return several.Select(ctx, sels, asList)
	}
	var out []record.Record
	for _, sel := range sels {
		name, ok := sel.Key.Name()
		switch {
		case !ok:
			continue // only keys of other types, which a Store has not
		case sel.Prefix:
			return nil, &record.UnsupportedError{What: "a selector with a prefix", Reason: "the store reads single records only"}
		}
		rec, err := s.data.Get(ctx, sel.Kind, name)
		if errors.Is(err, record.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}

// ofCopies returns the kind whose copies a kind holds.
func (s *Store) ofCopies(copies string) (string, bool) {
	for kind := range s.kinds {
		if CopiesKind(kind) == copies {
			return kind, true
		}
	}
	return "", false
}

// shown returns a record, or a copy as a record of its kind. A read before a change refuses what this
// region does not own: only its owner has the present state.
func (s *Store) shown(ctx context.Context, kind string, f found) (record.Record, error) {
	if !f.owned() && !f.missing() && vrunner.IsChanging(ctx) {
		return f.Record, s.refusal(ctx, f)
	}
	if !f.copied {
		return f.Record, nil
	}
	rec := f.Record
	key, _ := rec.Key.Name()
	_, name, _ := OfCopy(key)
	rec.Kind, rec.Key = kind, record.StringKey(name)
	var err error
	rec.Doc, err = WithID(rec.Doc, name)
	return rec, err
}

// refusal returns the error for a write to a record that this region does not own.
func (s *Store) refusal(ctx context.Context, f found) error {
	key, _ := f.Key.Name()
	region, _, _ := OfCopy(key)
	switch {
	case f.copied && (f.move.Owns() || f.move.Step == Missing):
		return elsewhere(ctx, region)
	case f.missing():
		return missing(s.own, f.move.Region)
	case f.copied && f.move.Step == Arriving:
		return moving(region)
	case f.move.Step == Arriving:
		return moving(s.own)
	default:
		return moving(f.move.Region)
	}
}

// moving returns the error for a write to a record that is on its way to a region.
func moving(to string) error {
	return refusal.Because(refusal.Moving, fmt.Sprintf("it moves to region %s; call again", to), nil, refusal.MetaRegion, to)
}

// missing returns the error for a write to a record that its new owner has lost.
func missing(own, to string) error {
	return refusal.Because(refusal.Moving, fmt.Sprintf("it moved to region %s, which has no record of that: delete it, or set its region to %s", to, own), nil, refusal.MetaRegion, to)
}

// elsewhere returns the error for a write to a record of another region.
func elsewhere(ctx context.Context, region string) error {
	vrunner.Elsewhere(ctx, region)
	return refusal.Because(refusal.NotOwner, fmt.Sprintf("region %s owns it, and its copy here is read-only: write there", region), nil, refusal.MetaRegion, region)
}

// Changes subscribes to kinds and their copies. A copy counts as a record of its kind.
func (s *Store) Changes(ctx context.Context, kinds ...string) (vrunner.Subscription, error) {
	all := append([]string{}, kinds...)
	names := map[string]string{}
	for _, kind := range kinds {
		if s.copied(ctx, kind) {
			all, names[CopiesKind(kind)] = append(all, CopiesKind(kind)), kind
		}
	}
	sub, err := s.data.Changes(ctx, all...)
	if err != nil || len(names) == 0 {
		return sub, err
	}
	return &changes{sub, names}, nil
}

type changes struct {
	vrunner.Subscription
	kinds map[string]string // by kind of copies
}

func (c *changes) Next(ctx context.Context) ([]vrunner.Dirty, error) {
	dirty, err := c.Subscription.Next(ctx)
	var out []vrunner.Dirty
	seen := map[vrunner.Dirty]bool{}
	for _, d := range dirty {
		if kind, ok := c.kinds[d.Kind]; ok {
			_, name, _ := OfCopy(d.Name)
			d = vrunner.Dirty{Kind: kind, Name: name}
		}
		// A move changes both records of one name.
		if !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out, err
}
