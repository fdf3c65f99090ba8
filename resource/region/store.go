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
	kinds  map[string]Kind
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
	return &Store{data: data, own: own, others: others, kinds: kinds}
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
	if !s.copied(ctx, kind) || !errors.Is(err, record.ErrNotFound) {
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
	if err != nil || len(all) == 0 {
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

// shownOf returns each record once: the owned one, or else a copy.
func (s *Store) shownOf(ctx context.Context, recs []record.Record) ([]record.Record, error) {
	have := map[id]bool{}
	var out []record.Record
	for _, rec := range recs {
		if _, ok := s.ofCopies(rec.Kind); !ok {
			name, _ := rec.Key.Name()
			have[id{rec.Kind, name}] = true
			out = append(out, rec)
		}
	}
	for _, rec := range recs {
		kind, ok := s.ofCopies(rec.Kind)
		if !ok {
			continue
		}
		key, _ := rec.Key.Name()
		_, name, ok := OfCopy(key)
		if !ok || have[id{kind, name}] {
			continue
		}
		have[id{kind, name}] = true
		shown, err := s.shown(ctx, kind, rec)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	return out, nil
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

// shown returns a copy as a record of its kind. A read before a change refuses it: only its owner has
// the present state.
func (s *Store) shown(ctx context.Context, kind string, rec record.Record) (record.Record, error) {
	key, _ := rec.Key.Name()
	region, name, _ := OfCopy(key)
	if vrunner.IsChanging(ctx) {
		return rec, elsewhere(ctx, region)
	}
	rec.Kind, rec.Key = kind, record.StringKey(name)
	var err error
	rec.Doc, err = WithID(rec.Doc, name)
	return rec, err
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
