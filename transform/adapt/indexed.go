package adapt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// IndexStore is a Store that reads records by declared fields. An Adapter uses it if it is
// available.
type IndexStore interface {
	Store
	// Indexed reports whether a field of a kind is declared as an index.
	Indexed(kind, field string) bool
	// ListIndexed reads records by a declared field. The request has no Token. With
	// record.ErrNoIndex the Adapter makes the list without it.
	ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error)
}

// carried returns the stored kind and field that hold a field of a kind shown, if a lens carries it
// unchanged.
func (a *Adapter) carried(kind, field string) (lead, stored string, ok bool) {
	if a.indexed == nil {
		return "", "", false
	}
	names, can := a.cfg.Names[kind].(transform.CarryingMapping)
	if !can {
		return "", "", false
	}
	lead = a.leads[kind]
	if stored, ok = names.Carried(field); !ok || lead == "" {
		return "", "", false
	}
	return lead, stored, a.indexed.Indexed(lead, stored)
}

// Indexed reports whether a lens carries a field of a kind shown unchanged from a declared field of
// the stored version.
func (a *Adapter) Indexed(kind, field string) bool {
	_, _, ok := a.carried(kind, field)
	return ok
}

// ListIndexed reads the leading stored records by the stored field, and returns the records that
// they show. It returns record.ErrNoIndex if the names of the two versions do not sort the same, or
// if that is unknown. It returns fewer records if their groups are too large for one read.
func (a *Adapter) ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	for keep := keeper(ctx); ; req.Limit /= 2 {
		page, err := a.listIndexed(ctx, kind, req)
		if !errors.Is(err, record.ErrTooLarge) || req.Limit < 2 {
			return page, err
		}
		// The groups of this many records do not fit in memory at once.
		keep(nil)
	}
}

func (a *Adapter) listIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	none := fmt.Errorf("%s by %s: %w", kind, req.Field, record.ErrNoIndex)
	lead, field, ok := a.carried(kind, req.Field)
	if !ok {
		return record.IndexPage{}, none
	}
	// Keep the request in terms of the version shown, for errors and filters.
	shown := req
	req.Field = field
	if req.Prefix, req.After, ok = a.storedNames(page{kind: kind, prefix: req.Prefix, after: req.After}); !ok {
		return record.IndexPage{}, none
	}
	found, err := a.indexed.ListIndexed(ctx, lead, req)
	if err != nil {
		return record.IndexPage{}, about(kind, shown.Prefix, err)
	}
	members, err := a.showAll(lead, found.Records, func(ids []transform.GroupID) (groups, error) { return a.loadAll(ctx, ids, true) })
	if err != nil {
		return record.IndexPage{}, about(kind, shown.Prefix, err)
	}
	out := record.IndexPage{Done: found.Done, Last: found.Last, Looked: found.Looked}
	// The next page starts after this name, which must be one of the version shown.
	if !found.Done {
		_, back := transform.NamesOf(a.keep, lead)
		if back == nil {
			return record.IndexPage{}, none
		}
		if out.LastName, err = back.Name(found.LastName); err != nil {
			return record.IndexPage{}, none
		}
	}
	for i, m := range members {
		rec, ok := a.ledBy(kind, m)
		name, _ := rec.Key.Name()
		// The stored prefix may be shorter than the mapped one, so filter again.
		if ok && strings.HasPrefix(name, shown.Prefix) && (shown.After == "" || name > shown.After) {
			out.Records, out.Values = append(out.Records, rec), append(out.Values, found.Values[i])
		}
	}
	return out, nil
}
