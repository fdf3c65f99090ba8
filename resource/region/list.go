package region

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// defaultList is the limit of a list that sets none.
const defaultList = 1000

// List returns owned records and copies in name order.
func (s *Store) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	if !s.copied(ctx, kind) {
		return s.data.List(ctx, kind, prefix, after, limit)
	}
	if limit <= 0 {
		limit = defaultList
	}
	if s.alone {
		recs, _, err := kept(after, limit, 0, s.ownedOf(kind), func(after string, limit int) ([]record.Record, bool, error) {
			recs, err := s.data.List(ctx, kind, prefix, after, limit)
			return recs, len(recs) >= limit, err
		})
		return recs, err
	}
	// Without a limit of bytes, each page has all records up to the limit, and so has their merge.
	recs, _, err := s.merge(ctx, kind, prefix, after, limit, 0, func(kind, prefix, after string, limit int) ([]record.Record, bool, error) {
		recs, err := s.data.List(ctx, kind, prefix, after, limit)
		return recs, len(recs) >= limit, err
	})
	return recs, err
}

// ListBounded is List with a limit of bytes.
func (s *Store) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	if limit <= 0 {
		limit = defaultList
	}
	page := func(kind, prefix, after string, limit int) ([]record.Record, bool, error) {
		if bounded, ok := s.data.(vrunner.BoundedStore); ok {
			return bounded.ListBounded(ctx, kind, prefix, after, limit, bytes)
		}
		recs, err := s.data.List(ctx, kind, prefix, after, limit)
		return recs, len(recs) >= limit, err
	}
	if !s.copied(ctx, kind) {
		return page(kind, prefix, after, limit)
	}
	if s.alone {
		return kept(after, limit, bytes, s.ownedOf(kind), func(after string, limit int) ([]record.Record, bool, error) {
			return page(kind, prefix, after, limit)
		})
	}
	return s.merge(ctx, kind, prefix, after, limit, bytes, page)
}

// ownedOf returns whether this region owns a record of a kind.
func (s *Store) ownedOf(kind string) func(record.Record) bool {
	return func(rec record.Record) bool { return s.kinds[kind].MoveOf(rec.Doc).Owns() }
}

// kept returns the records to keep of as many pages as the limit needs: a short list would end the
// caller's.
func kept(after string, limit, bytes int, keep func(record.Record) bool, page func(after string, limit int) ([]record.Record, bool, error)) (out []record.Record, more bool, err error) {
	for size := 0; ; {
		var recs []record.Record
		if recs, more, err = page(after, limit-len(out)); err != nil {
			return nil, false, err
		}
		for _, rec := range recs {
			if after, _ = rec.Key.Name(); keep(rec) {
				out, size = append(out, rec), size+len(rec.Doc)
			}
		}
		if !more || len(recs) == 0 || len(out) >= limit || bytes > 0 && size >= bytes {
			return out, more, nil
		}
	}
}

// cursor is a page of a list, of which the merge takes the first records.
type cursor struct {
	recs   []record.Record
	more   bool // the list has more than this page
	copied bool
}

// name returns the name under which the first record is shown.
func (c *cursor) name() string {
	key, _ := c.recs[0].Key.Name() // a Store lists names only
	if !c.copied {
		return key
	}
	_, name, _ := OfCopy(key)
	return name
}

// found returns the first record.
func (c *cursor) found(kind Kind) found {
	return found{c.recs[0], c.copied, kind.MoveOf(c.recs[0].Doc)}
}

// merge returns the first records of a kind and of its copies in name order. It ends where one of the
// pages ends and has more, because the next record of that list is unknown.
func (s *Store) merge(ctx context.Context, kind, prefix, after string, limit, bytes int, page func(kind, prefix, after string, limit int) (recs []record.Record, more bool, err error)) (out []record.Record, more bool, err error) {
	var all []*cursor
	read := func(copied bool, of, prefix, after string) error {
		c := &cursor{copied: copied}
		keep := func(rec record.Record) bool { return !copied || !s.given(s.kinds[kind].MoveOf(rec.Doc)) }
		c.recs, c.more, err = kept(after, limit, bytes, keep, func(after string, limit int) ([]record.Record, bool, error) {
			return page(of, prefix, after, limit)
		})
		all = append(all, c)
		return err
	}
	// Copies first: a record that moves here is owned before its copy goes, so one of the reads sees
	// it.
	for _, region := range s.others {
		from := CopyKey(region, after)
		if after == "" {
			from = ""
		}
		if err := read(true, CopiesKind(kind), CopyKey(region, prefix), from); err != nil {
			return nil, false, err
		}
	}
	if err := read(false, kind, prefix, after); err != nil {
		return nil, false, err
	}
	for size := 0; len(out) < limit && (bytes <= 0 || size < bytes); {
		var first *cursor
		var best found
		for _, c := range all {
			switch {
			case len(c.recs) == 0 && c.more:
				return out, true, nil
			case len(c.recs) == 0:
			case first == nil || c.name() < first.name() || c.name() == first.name() && c.found(s.kinds[kind]).rank() < best.rank():
				first, best = c, c.found(s.kinds[kind])
			}
		}
		if first == nil {
			return out, false, nil
		}
		name := first.name()
		for _, c := range all {
			if len(c.recs) > 0 && c.name() == name {
				c.recs = c.recs[1:]
			}
		}
		rec, err := s.shown(ctx, kind, best)
		if err != nil {
			return nil, false, err
		}
		out, size = append(out, rec), size+len(rec.Doc)
	}
	for _, c := range all {
		more = more || c.more || len(c.recs) > 0
	}
	return out, more, nil
}

// ListNames returns the names that List would return. It may include names of deleted records.
func (s *Store) ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error) {
	if limit <= 0 {
		limit = defaultList
	}
	names := func(kind, prefix, after string) ([]string, error) {
		if batch, ok := s.data.(vrunner.BatchStore); ok {
			return batch.ListNames(ctx, kind, prefix, after, limit)
		}
		recs, err := s.data.List(ctx, kind, prefix, after, limit)
		out := make([]string, 0, len(recs))
		for _, rec := range recs {
			name, _ := rec.Key.Name()
			out = append(out, name)
		}
		return out, err
	}
	if !s.copied(ctx, kind) {
		return names(kind, prefix, after)
	}
	var out []string
	for _, region := range s.others {
		from := CopyKey(region, after)
		if after == "" {
			from = ""
		}
		copies, err := names(CopiesKind(kind), CopyKey(region, prefix), from)
		if err != nil {
			return nil, err
		}
		for _, key := range copies {
			_, name, _ := OfCopy(key)
			out = append(out, name)
		}
	}
	owned, err := names(kind, prefix, after)
	if err != nil {
		return nil, err
	}
	// Each list has its first names up to the limit, so the first names of all are among them.
	out = append(out, owned...)
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(limit, len(out))], nil
}

// Indexed reports whether a field of a kind is declared. A kind with copies is read without an index,
// which would find owned records only.
func (s *Store) Indexed(kind, field string) bool {
	index, ok := s.data.(vrunner.IndexStore)
	k, copied := s.kinds[kind]
	if s.alone {
		copied = k.Move != "" // an index finds reservations, too
	}
	return ok && !copied && index.Indexed(kind, field)
}

// ListIndexed reads by a declared field.
func (s *Store) ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	if index, ok := s.data.(vrunner.IndexStore); ok && s.Indexed(kind, req.Field) {
		return index.ListIndexed(ctx, kind, req)
	}
	return record.IndexPage{}, fmt.Errorf("%s by %s: %w", kind, req.Field, record.ErrNoIndex)
}

// Searched reports whether a field of a kind can be searched.
func (s *Store) Searched(kind, field string) bool {
	search, ok := s.data.(vrunner.SearchStore)
	return ok && search.Searched(kind, field)
}

// Search returns the names of owned records.
func (s *Store) Search(ctx context.Context, req record.SearchRequest) (record.SearchPage, error) {
	if search, ok := s.data.(vrunner.SearchStore); ok {
		return search.Search(ctx, req)
	}
	return record.SearchPage{}, &record.UnsupportedError{What: "search of " + req.Kind, Reason: "the server has no index of it"}
}

// Declares reports whether the data has a kind (resource.Declared).
func (s *Store) Declares(kind string) bool {
	d, ok := s.data.(interface{ Declares(kind string) bool })
	return !ok || d.Declares(kind)
}
