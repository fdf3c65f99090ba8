package vrunner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// Searcher is the index of one version for full-text search. It follows the records, so it is
// behind them.
type Searcher interface {
	// Searched reports whether a field of a kind can be searched. An empty field stands for the kind
	// itself.
	Searched(kind, field string) bool
	// Search answers from an index that has everything that was acknowledged before since, and that
	// is no more than its own limit behind. It waits for that until ctx ends.
	Search(ctx context.Context, req record.SearchRequest, since time.Time) (record.SearchPage, error)
}

// SearchStore is a Store with full-text search. A View is one. An adapter is one for the fields that
// it finds in the stored records.
type SearchStore interface {
	Store
	// Searched reports whether a field of a kind can be searched. An empty field stands for the kind
	// itself.
	Searched(kind, field string) bool
	// Search returns names of records. The caller reads the records, which may have changed since or
	// be gone.
	Search(ctx context.Context, req record.SearchRequest) (record.SearchPage, error)
}

var (
	_ SearchStore = (*View)(nil)
	_ SearchStore = over{}
)

// Searched reports whether a field of a kind can be searched.
func (v *View) Searched(kind, field string) bool {
	return v.search != nil && v.search.Searched(kind, field)
}

// Search returns the names of the records that an index has for a request. Once a version is
// active, its index counts only when it has everything from before the flip.
func (v *View) Search(ctx context.Context, req record.SearchRequest) (page record.SearchPage, err error) {
	if v.search == nil {
		return page, noSearch(req.Kind)
	}
	d, since := v.runner.activeSince()
	if r := requestOf(ctx); r != nil && r.version != d.CurrentVersion {
		// Another version is active, so the Runner must run this request on another stack.
		r.moved.Store(true)
		return page, errMoved
	}
	if v.version != d.CurrentVersion {
		// A sync fills this version, and never has everything.
		if since = (time.Time{}); upgradestate.Retired(d, v.version) {
			return page, v.absent(d, req.Kind)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, v.runner.cfg.HoldCap)
	defer cancel()
	page, err = v.search.Search(bounded, req, since)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = refusal.Because(refusal.NotReady, "the search index of "+v.version+" is not up to date yet; call again", err)
	}
	if err == nil && len(page.Names) == 0 && v.version == d.CurrentVersion {
		// The caller reads no record, which would show that another version is active: without etcd
		// this server may not know it. So one read asks the database.
		if _, err := v.ListNames(ctx, req.Kind, "", "", 1); err != nil {
			return record.SearchPage{}, err
		}
	}
	return page, err
}

// noSearch returns the error for a kind without an index.
func noSearch(kind string) error {
	return &record.UnsupportedError{What: "search of " + kind, Reason: "the server has no index of it: see search in the configuration"}
}

// activeSince returns the record, and the moment at which this server learned that its version is
// active.
func (r *Runner) activeSince() (upgradestate.Deployment, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record, r.activeAt
}

// searches are the abilities of a SearchStore that an Adapter may have too.
type searches interface {
	Searched(kind, field string) bool
	Search(ctx context.Context, req record.SearchRequest) (record.SearchPage, error)
}

// Searched reports whether the adapter finds a field of a kind in the stored index.
func (o over) Searched(kind, field string) bool {
	s, ok := o.Adapter.(searches)
	return ok && s.Searched(kind, field)
}

// Search returns the names of the records shown.
func (o over) Search(ctx context.Context, req record.SearchRequest) (record.SearchPage, error) {
	if s, ok := o.Adapter.(searches); ok {
		return s.Search(ctx, req)
	}
	return record.SearchPage{}, fmt.Errorf("over another version: %w", noSearch(req.Kind))
}
