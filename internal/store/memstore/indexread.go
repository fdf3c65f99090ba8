package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

var _ record.IndexReader = (*Store)(nil)

// looksAt limits the entries that one read of a range with a Prefix examines. It is small, so that
// tests get pages that end early.
const looksAt = 16

// indexEntry is the entry of a record in an index.
type indexEntry struct {
	value bson.RawValue
	name  string
	doc   bson.Raw
}

func (a indexEntry) compare(b indexEntry) int {
	return cmp.Or(record.CompareValues(a.value, b.value), strings.Compare(a.name, b.name))
}

// ListIndexed reads by a declared field that has an index.
func (s *Store) ListIndexed(ctx context.Context, req record.IndexRequest) (page record.IndexPage, err error) {
	col, err := s.open(ctx, req.Token, s.resolve)
	if err != nil {
		return page, err
	}
	defer s.cluster.mu.Unlock()
	if !slices.ContainsFunc(col.indexes, func(ix bson.Raw) bool { return record.IndexName(ix) == record.IndexedName(req.Field) }) {
		return page, fmt.Errorf("%s by %s: %w", req.Token.Kind, req.Field, record.ErrNoIndex)
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	ranged := req.Equal.Type == 0
	size := 0
	page.Done = true
	for i, e := range s.entries(col, req) {
		if len(page.Records) == limit || ranged && req.Prefix != "" && i == looksAt || req.Bytes > 0 && size >= req.Bytes {
			page.Done = false
			break
		}
		// Advance over entries outside the prefix too, or the next page would examine them again.
		page.Last, page.LastName, page.Looked = e.value, e.name, page.Looked+1
		// In a range, entries with other names lie in between.
		if strings.HasPrefix(e.name, req.Prefix) {
			size += len(e.doc)
			page.Values = append(page.Values, e.value)
			page.Records = append(page.Records, record.Record{Kind: req.Token.Kind, Key: record.StringKey(e.name), Doc: e.doc})
		}
	}
	return page, nil
}

// entries returns the matching index entries in the order of the request. Callers hold mu.
func (s *Store) entries(col *collection, req record.IndexRequest) (out []indexEntry) {
	ranged := req.Equal.Type == 0
	for _, r := range col.rows {
		name, ok := r.key.Name()
		st := r.at(s.cluster.clock)
		if !ok || !st.live() {
			continue
		}
		// A document with an array has several entries.
		for _, v := range record.ValuesAt(st.doc, req.Field) {
			if ranged {
				ok = record.SameType(v, req.Above) && record.CompareValues(v, req.Above) > 0 && (req.Below.Type == 0 || record.CompareValues(v, req.Below) < 0)
			} else {
				ok = record.CompareValues(v, req.Equal) == 0 && strings.HasPrefix(name, req.Prefix) && (req.After == "" || name > req.After)
			}
			if ok {
				out = append(out, indexEntry{v, name, st.doc})
			}
		}
	}
	slices.SortFunc(out, indexEntry.compare)
	if req.Reverse {
		slices.Reverse(out)
	}
	return out
}
