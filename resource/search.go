package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Search returns the page of results for a request, with the words in its field query
// (listing.ParseQuery) and the fields of a list: parent, filter, order_by, page_size, page_token and
// read_mask. The best results come first. With the name field as order_by they come in name order,
// and in any number of pages.
//
// The store needs an index (vrunner.SearchStore, dbcontroller.Version.Search). An index is behind
// the records, by no more than the limit of the configuration. Results are shown as their records
// are now.
func (t *Table[M]) Search(ctx context.Context, req proto.Message) (listing.Page[M], error) {
	store, ok := t.store.(vrunner.SearchStore)
	if !ok || !store.Searched(t.cfg.Kind, "") {
		return listing.Page[M]{}, &record.UnsupportedError{What: "search of " + t.cfg.Kind, Reason: "the server has no index of it"}
	}
	r := t.request(req)
	in, err := t.within(r)
	if err != nil {
		return listing.Page[M]{}, err
	}
	s, err := t.selection(r.text(r.roles.Filter), "", in.where, r.mask(r.roles.ReadMask))
	if err != nil {
		return listing.Page[M]{}, err
	}
	results := &results{store: t.store, kind: t.cfg.Kind}
	return listing.Search(ctx, req, listing.SearchSource[M]{
		Searched: func(field string) bool { return store.Searched(t.cfg.Kind, field) },
		Find: func(ctx context.Context, req record.SearchRequest) (record.SearchPage, error) {
			if in.none {
				return record.SearchPage{Done: true}, nil
			}
			req.Kind, req.Prefix = t.cfg.Kind, in.scope.begin
			if !req.ByName && (!in.where.IsZero() || in.scope.rest != "") {
				req.Limit = 0 // records outside the range may be among the best ones
			}
			page, err := store.Search(ctx, req)
			if err != nil {
				return page, fmt.Errorf("search: %w", err)
			}
			results.names = page.Names
			return page, nil
		},
		Message: func(ctx context.Context, name string) (M, error) {
			// The index covers all names that begin so. Those outside the scope are dropped here.
			if !in.scope.holds(name) {
				return t.fresh(), listing.ErrGone
			}
			rec, err := results.get(ctx, name)
			if errors.Is(err, record.ErrNotFound) {
				return t.fresh(), listing.ErrGone
			}
			if err != nil {
				return t.fresh(), about(name, err)
			}
			m, ok, err := t.show(ctx, s, name, rec)
			if err == nil && !ok {
				err = listing.ErrGone
			}
			return m, err
		},
		Held:       results.held,
		NameField:  t.cfg.NameField,
		Descriptor: t.message,
	})
}

// results reads the records of a search, several at once if the store can.
type results struct {
	store vrunner.Store
	kind  string
	names []string                 // found, in order
	read  int                      // how many of names were read
	at    map[string]record.Record // the existing ones of those that were read last
}

// held returns the bytes of the records that were read ahead.
func (r *results) held() (bytes int64) {
	for _, rec := range r.at {
		bytes += int64(len(rec.Doc))
	}
	return bytes
}

// resultsTogether is the number of records that one command reads. Most searches show a few results.
const resultsTogether = 50

// get returns the record of a name. Names come in the order in which they were found.
func (r *results) get(ctx context.Context, name string) (record.Record, error) {
	batch, ok := r.store.(vrunner.BatchStore)
	if !ok {
		return r.store.Get(ctx, r.kind, name)
	}
	if rec, there := r.at[name]; there {
		return rec, nil
	}
	next := slices.Index(r.names[r.read:], name)
	if next < 0 {
		return record.Record{}, record.ErrNotFound // it was read, and does not exist
	}
	part := r.names[r.read+next:]
	part = part[:min(len(part), resultsTogether)]
	sels := make([]record.Selector, 0, len(part))
	for _, n := range part {
		sels = append(sels, record.Selector{Kind: r.kind, Key: record.StringKey(n)})
	}
	recs, err := batch.Select(ctx, sels, true)
	if errors.Is(err, record.ErrTooLarge) {
		r.read, r.at = r.read+next+1, nil
		return r.store.Get(ctx, r.kind, name)
	}
	if err != nil {
		return record.Record{}, err
	}
	r.read, r.at = r.read+next+len(part), map[string]record.Record{}
	for _, rec := range recs {
		n, _ := rec.Key.Name()
		r.at[n] = rec
	}
	rec, there := r.at[name]
	if !there {
		return record.Record{}, record.ErrNotFound
	}
	return rec, nil
}
