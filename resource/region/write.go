package region

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/record"
)

// Write makes all mutations of owned records or none. If one of them concerns a record of another
// region, it makes none, and the error has the reason refusal.NotOwner.
func (s *Store) Write(ctx context.Context, ms []record.Mutation) error {
	var unsure []record.Selector // writes that would succeed although there is a copy
	for _, m := range ms {
		if _, ok := s.kinds[m.Kind]; !ok {
			continue
		}
		if err := s.refuse(ctx, m); err != nil {
			return err
		}
		// All other writes fail by themselves if the record is not owned.
		if !m.Exists && m.Match == nil {
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
	region, _, _, looked := s.copyOf(ctx, all)
	switch {
	case looked != nil:
		return looked
	case region != "":
		return elsewhere(ctx, region)
	}
	return err
}

// refuse refuses a write whose document or name belongs to another region.
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
	region, _, owned, err := s.copyOf(ctx, []record.Selector{{Kind: m.Kind, Key: m.Key}})
	switch {
	case err != nil:
		return err
	// A record may name a region that it was never given to. Other changes of it are fine.
	case owned && m.Match != nil && m.Match.Path == "" && kind.OwnerOf(name, bson.Raw(m.Match.Value.Value)) == owner:
		return nil
	case owned:
		return listing.Invalid(kind.Field, "is %q: a write cannot give a record to another region", owner)
	case region != "":
		owner = region
	}
	return elsewhere(ctx, owner)
}

// free refuses creations and unconditional writes of names that have a copy.
func (s *Store) free(ctx context.Context, sels []record.Selector, ms []record.Mutation) error {
	region, of, _, err := s.copyOf(ctx, sels)
	if err != nil || region == "" {
		return err
	}
	for _, m := range ms {
		if name, _ := m.Key.Name(); m.Absent && of == (id{m.Kind, name}) {
			return fmt.Errorf("%s %s: %w", m.Kind, name, record.ErrExists)
		}
	}
	return elsewhere(ctx, region)
}

// copyOf returns the first of these records that is a copy and not owned, and its region. owned reports
// that all of those that exist are owned.
func (s *Store) copyOf(ctx context.Context, sels []record.Selector) (region string, of id, owned bool, err error) {
	if len(sels) == 0 {
		return "", id{}, false, nil
	}
	all := append(s.copiesOf(sels, func(string) bool { return true }), sels...)
	recs, err := s.selectData(ctx, all, false)
	if err != nil {
		return "", id{}, false, err
	}
	mine := map[id]bool{}
	for _, rec := range recs {
		if _, ok := s.kinds[rec.Kind]; ok {
			name, _ := rec.Key.Name()
			mine[id{rec.Kind, name}] = true
		}
	}
	for _, rec := range recs {
		kind, ok := s.ofCopies(rec.Kind)
		key, _ := rec.Key.Name()
		if region, name, named := OfCopy(key); ok && named && !mine[id{kind, name}] {
			return region, id{kind, name}, false, nil
		}
	}
	return "", id{}, len(mine) > 0, nil
}
