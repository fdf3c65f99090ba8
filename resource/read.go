package resource

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
)

// Get returns the resource that a request names, as much of it as its read mask asks for.
func (t *Table[M]) Get(ctx context.Context, req proto.Message) (M, error) {
	r := t.request(req)
	name, err := t.named(r)
	if err != nil {
		return t.fresh(), err
	}
	return t.get(ctx, name, r.mask(r.roles.ReadMask))
}

// Find returns the resource of a name, or record.ErrNotFound.
func (t *Table[M]) Find(ctx context.Context, name string) (M, error) {
	if err := t.pattern.check(t.cfg.NameField, name); err != nil {
		return t.fresh(), err
	}
	return t.get(ctx, name, nil)
}

func (t *Table[M]) get(ctx context.Context, name string, mask *fieldmaskpb.FieldMask) (M, error) {
	none := t.fresh()
	s, err := t.selection("", "", listing.Filter{}, mask)
	if err != nil {
		return none, err
	}
	rec, err := t.store.Get(ctx, t.cfg.Kind, name)
	if err != nil {
		return none, about(name, err)
	}
	m, ok, err := t.show(ctx, s, name, rec)
	switch {
	case err != nil:
		return none, err
	case !ok:
		return none, fmt.Errorf("%s: %w", name, record.ErrNotFound)
	}
	return m, listing.ApplyMask(m, mask)
}

// List returns the page that a request asks for.
func (t *Table[M]) List(ctx context.Context, req proto.Message) (listing.Page[M], error) {
	r := t.request(req)
	in, err := t.within(r)
	if err != nil {
		return listing.Page[M]{}, err
	}
	s, err := t.selection(r.text(r.roles.Filter), r.text(r.roles.OrderBy), in.where, r.mask(r.roles.ReadMask))
	if err != nil {
		return listing.Page[M]{}, err
	}
	return listing.List(ctx, req, listing.Source[*row, M]{
		Fetch: func(ctx context.Context, after string, limit int) ([]*row, error) {
			recs, err := t.fetch(ctx, in, after, limit)
			return rowsOf(recs), err
		},
		Name: func(r *row) (string, error) { return nameOf(r.head) },
		Message: func(ctx context.Context, r *row) (M, error) {
			m, ok, err := t.showRow(ctx, s, r)
			if err == nil && !ok {
				err = listing.ErrGone
			}
			return m, err
		},
		References: t.cfg.References,
		NameField:  t.cfg.NameField,
	})
}

// Each calls f for all resources of a parent; empty is all there are.
func (t *Table[M]) Each(ctx context.Context, parent string, f func(name string, m M) error) error {
	in, err := t.pattern.scope("parent", parent)
	if err != nil {
		return err
	}
	s, err := t.selection("", "", listing.Filter{}, nil)
	if err != nil {
		return err
	}
	return t.each(ctx, within{scope: in}, s, f)
}

func (t *Table[M]) each(ctx context.Context, in within, s selection, f func(name string, m M) error) error {
	const batch = 1000
	for after := ""; ; {
		recs, err := t.fetch(ctx, in, after, batch)
		if err != nil {
			return err
		}
		for _, r := range rowsOf(recs) {
			if after, err = nameOf(r.head); err != nil {
				return err
			}
			m, ok, err := t.showRow(ctx, s, r)
			if err != nil {
				return err
			}
			if ok {
				if err := f(after, m); err != nil {
					return err
				}
			}
		}
		if len(recs) < batch {
			return nil
		}
	}
}

// fetch returns the first records of a scope after a name, fewer than limit only if there
// are no more. What lies between them is skipped, not read.
func (t *Table[M]) fetch(ctx context.Context, in within, after string, limit int) ([]record.Record, error) {
	if in.none {
		return nil, nil
	}
	var out []record.Record
	for {
		recs, err := t.store.List(ctx, t.cfg.Kind, in.scope.begin, after, limit-len(out))
		if err != nil {
			return nil, err
		}
		done := len(recs) < limit-len(out)
		for _, rec := range recs {
			name, err := nameOf(rec)
			if err != nil {
				return nil, err
			}
			if to, skip := in.scope.skip(name); skip {
				after, done = to, false
				break
			}
			after, out = name, append(out, rec)
		}
		if done || len(out) == limit {
			return out, nil
		}
	}
}

func nameOf(rec record.Record) (string, error) {
	name, ok := rec.Key.Name()
	if !ok {
		return "", fmt.Errorf("%w: the key %s is not a string", apiversion.ErrStored, rec.Key)
	}
	return name, nil
}

// Decode reads the message of a record, without what its parts hold.
func (t *Table[M]) Decode(rec record.Record) (M, error) {
	m := t.fresh()
	if err := protodoc.Unmarshal(rec.Doc, m); err != nil {
		name, _ := rec.Key.Name()
		return m, fmt.Errorf("%s: %w: %w", name, apiversion.ErrStored, err)
	}
	return m, nil
}

// show returns the message of a record with as much of its parts as is wanted. ok is false
// for one that is not wanted, or that was deleted meanwhile.
func (t *Table[M]) show(ctx context.Context, s selection, name string, rec record.Record) (m M, ok bool, err error) {
	if m, err = t.Decode(rec); err != nil {
		return m, false, err
	}
	if !s.head.Eval(m) {
		return m, false, nil
	}
	if !s.parts {
		return m, true, nil
	}
	m, err = t.whole(ctx, name, rec)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return m, false, nil
	case err != nil:
		return m, false, fmt.Errorf("%s: %w", name, err)
	}
	return m, s.head.Eval(m) && s.rest.Eval(m), nil
}
