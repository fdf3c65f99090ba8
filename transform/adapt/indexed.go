package adapt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// IndexStore is a Store that reads records by declared fields. An Adapter takes it where it is there.
type IndexStore interface {
	Store
	// Indexed reports whether a field of a kind is declared.
	Indexed(kind, field string) bool
	// ListIndexed reads by a declared field. The request has no Token. record.ErrNoIndex: the list is
	// made without.
	ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error)
}

// carried returns the stored kind and the field of it that hold a field of a kind shown, where a
// lens carries it unchanged.
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

// Indexed reports whether a field of a kind shown is carried unchanged from one that the stored
// version declares.
func (a *Adapter) Indexed(kind, field string) bool {
	_, _, ok := a.carried(kind, field)
	return ok
}

// ListIndexed reads the stored records that lead, by the field that holds the one asked for, and
// shows them. record.ErrNoIndex: the names of both versions do not sort the same, or are not known.
// Of groups that are too large to be read at once it shows fewer.
func (a *Adapter) ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	for keep := keeper(ctx); ; req.Limit /= 2 {
		page, err := a.listIndexed(ctx, kind, req)
		if !errors.Is(err, record.ErrTooLarge) || req.Limit < 2 {
			return page, err
		}
		keep(nil)
	}
}

func (a *Adapter) listIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error) {
	none := fmt.Errorf("%s by %s: %w", kind, req.Field, record.ErrNoIndex)
	lead, field, ok := a.carried(kind, req.Field)
	if !ok {
		return record.IndexPage{}, none
	}
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
		if ok && strings.HasPrefix(name, shown.Prefix) && (shown.After == "" || name > shown.After) {
			out.Records, out.Values = append(out.Records, rec), append(out.Values, found.Values[i])
		}
	}
	return out, nil
}
