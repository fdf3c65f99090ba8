package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// release handles the resources that name a deleted one.
func (f *reference[M]) release(ctx context.Context, r *removal, name string) error {
	t := f.table
	var block *blocked
	if f.TargetDelete == Block {
		what := t.pattern.collection()
		if what == "" {
			what = t.cfg.Kind
		}
		what += " by " + f.Field
		i := slices.IndexFunc(r.blocks, func(b *blocked) bool { return b.what == what })
		if i < 0 {
			i, r.blocks = len(r.blocks), append(r.blocks, &blocked{what: what, by: map[place]bool{}})
		}
		block = r.blocks[i]
	}
	return t.naming(ctx, r, f, name, func(own string, rec record.Record) error {
		p := place{t.cfg.Kind, rec.Key}
		if _, gone := r.gone[p]; gone {
			return nil
		}
		switch f.TargetDelete {
		case Cascade:
			match, err := t.matching(rec.Doc)
			if err != nil {
				return about(own, err)
			}
			return t.remove(ctx, r, own, match, nil)
		case Unset:
			return t.unset(ctx, r, f, name, own, rec)
		default:
			if len(block.by) > maxChildren {
				return errEnough
			}
			block.by[p] = true
			return r.keep(ctx, len(own))
		}
	})
}

// errEnough ends naming early. It is not reported.
var errEnough = errors.New("enough was read")

// naming calls use for each resource that has a name in the field of a reference, by the index of
// the field if the store has it.
func (t *Table[M]) naming(ctx context.Context, r *removal, f *reference[M], name string, use func(own string, rec record.Record) error) error {
	store, byIndex := t.store.(vrunner.IndexStore)
	byIndex = byIndex && store.Indexed(t.cfg.Kind, f.Field)
	_, value, err := bson.MarshalValue(name)
	if err != nil {
		return err
	}
	for after := ""; ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var page record.IndexPage
		if byIndex {
			page, err = store.ListIndexed(ctx, t.cfg.Kind, record.IndexRequest{Field: f.Field, Equal: bson.RawValue{Type: bson.TypeString, Value: value}, After: after, Limit: 1000, Bytes: fetchBytes})
			if errors.Is(err, record.ErrNoIndex) {
				// It is not complete yet, or the database has no such indexes. What was used already
				// may be used again.
				byIndex, after = false, ""
				continue
			}
		} else {
			var more bool
			page.Records, more, err = t.list(ctx, t.cfg.Kind, "", after, 1000, fetchBytes)
			page.Done = !more || len(page.Records) == 0
			if err == nil && !page.Done {
				page.LastName, err = nameOf(page.Records[len(page.Records)-1])
			}
		}
		if err != nil {
			return apiversion.Known(err)
		}
		for _, rec := range page.Records {
			own, err := nameOf(rec)
			if err != nil {
				return err
			}
			m, err := t.Decode(rec)
			if err != nil {
				return err
			}
			if _, has := slices.BinarySearch(f.names(m), name); !has {
				continue
			}
			if err := use(own, rec); err != nil {
				if errors.Is(err, errEnough) {
					return nil
				}
				return err
			}
		}
		memory.ReadsOf(ctx).Keep(r.held)
		if page.Done {
			return nil
		}
		after = page.LastName
	}
}

// unset adds the change that removes a name from a resource's field.
func (t *Table[M]) unset(ctx context.Context, r *removal, f *reference[M], name, own string, rec record.Record) error {
	p := place{t.cfg.Kind, rec.Key}
	c := r.cleared[p]
	if c == nil {
		m, now, err := t.asStored(ctx, own, rec)
		switch {
		case errors.Is(err, record.ErrNotFound):
			return nil // deleted meanwhile
		case err != nil:
			return about(own, err)
		}
		if _, has := slices.BinarySearch(f.names(m), name); !has {
			return nil // changed meanwhile
		}
		before := proto.CloneOf(m)
		c = &clearing{m: m, writes: func(ctx context.Context) ([]record.Mutation, error) {
			ms, err := t.rewrite(ctx, own, now, before, m)
			if connect.CodeOf(err) == connect.CodeInvalidArgument {
				// It is about a field of another resource than the request's.
				return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s of %s cannot be without it: %w", f.Field, own, err))
			}
			return ms, err
		}}
		r.cleared[p] = c
		t.owner(r, own)
		if err := r.keep(ctx, 3*len(now.head.Doc)); err != nil {
			return err
		}
	}
	each(c.m.ProtoReflect(), f.path, func(has string) bool { return has != name })
	return nil
}

// asStored returns a listed resource as a change reads it: with its parts, for Check.
func (t *Table[M]) asStored(ctx context.Context, name string, rec record.Record) (M, stored, error) {
	if t.cfg.Parts != nil {
		return t.read(ctx, name)
	}
	m, err := t.Decode(rec)
	if err != nil {
		return m, stored{}, err
	}
	match, err := t.matching(rec.Doc)
	return m, stored{head: rec, match: match}, err
}
