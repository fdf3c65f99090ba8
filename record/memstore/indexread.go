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

// looksAt is how many entries a read of a range with a Prefix looks at: few, so that a test meets
// pages that end before they have what they were asked for.
const looksAt = 16

// indexEntry is a record's place in an index.
type indexEntry struct {
	value bson.RawValue
	name  string
	doc   bson.Raw
}

func (a indexEntry) compare(b indexEntry) int {
	return cmp.Or(record.CompareValues(a.value, b.value), strings.Compare(a.name, b.name))
}

// ListIndexed reads by a declared field whose index is there.
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
		page.Last, page.LastName, page.Looked = e.value, e.name, page.Looked+1
		if strings.HasPrefix(e.name, req.Prefix) {
			size += len(e.doc)
			page.Values = append(page.Values, e.value)
			page.Records = append(page.Records, record.Record{Kind: req.Token.Kind, Key: record.StringKey(e.name), Doc: e.doc})
		}
	}
	return page, nil
}

// entries are those that a request is about, in its order. Callers hold mu.
func (s *Store) entries(col *collection, req record.IndexRequest) (out []indexEntry) {
	ranged := req.Equal.Type == 0
	for _, r := range col.rows {
		name, ok := r.key.Name()
		st := r.at(s.cluster.clock)
		if !ok || !st.live() {
			continue
		}
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
