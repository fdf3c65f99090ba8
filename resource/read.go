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
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Get returns the resource that a request names, with the fields of the request's read mask. If
// there is no such resource, the error is record.ErrNotFound.
func (t *Table[M]) Get(ctx context.Context, req proto.Message) (M, error) {
	r := t.request(req)
	name, err := t.named(r)
	if err != nil {
		return t.fresh(), err
	}
	return t.get(ctx, name, r.mask(r.roles.ReadMask))
}

// Find returns the resource with a name. If there is none, the error is record.ErrNotFound.
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
	ctx, read := memory.Read(ctx)
	defer read.Drop()
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

// List returns the page for a request. A list is not a snapshot (listing.List).
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
	_, s.read = memory.Read(ctx)
	defer s.read.Drop()
	return listing.List(ctx, req, listing.Source[*row, M]{
		Index: t.index(in),
		Fetch: func(ctx context.Context, after string, limit int) ([]*row, error) {
			recs, more, err := t.fetch(ctx, in, after, limit, fetchBytes)
			// Bytes ended the fetch. Without the error, a short result would mean the end of the
			// list.
			if err == nil && more && len(recs) < limit {
				err = listing.ErrMore
			}
			return rowsOf(recs), err
		},
		Name: func(r *row) (string, error) { return nameOf(r.head) },
		Size: func(r *row) int { return len(r.head.Doc) },
		Message: func(ctx context.Context, r *row) (M, error) {
			m, ok, err := t.showRow(ctx, s, r)
			// The record was deleted, or changed out of the filter, after the fetch.
			if err == nil && !ok {
				err = listing.ErrGone
			}
			return m, err
		},
		References: t.cfg.References,
		NameField:  t.cfg.NameField,
	})
}

// Each calls f for all resources of a parent, in name order. An empty parent means all resources of
// the table. Each stops at the first error and returns it.
func (t *Table[M]) Each(ctx context.Context, parent string, f func(name string, m M) error) error {
	in, err := t.pattern.scope("parent", parent)
	if err != nil {
		return err
	}
	s, err := t.selection("", "", listing.Filter{}, nil)
	if err != nil {
		return err
	}
	return t.each(ctx, within{scope: in}, s, nil, f)
}

// each calls f for all resources. Without memory it returns an error, if wait is nil or before the
// first resource. Otherwise it calls wait and resumes after the last resource that f accepted.
func (t *Table[M]) each(ctx context.Context, in within, s selection, wait func(context.Context) error, f func(name string, m M) error) error {
	held := memory.Of(ctx).Hold() // a page stays in memory while its client does not read
	defer held.Set(0)
	_, s.read = memory.Read(ctx)
	defer s.read.Drop()
	most := fetchBytes
	for after := ""; ; {
		more, err := t.page(ctx, in, s, held, most, &after, f)
		held.Set(0) // before the wait, so that two watches cannot wait for each other's page
		s.read.Drop()
		switch {
		case errors.Is(err, memory.ErrNoRoom) && wait != nil && after != "":
			// A smaller page needs less memory, so it may fit sooner.
			most = max(most/2, leastBytes)
			if err := wait(ctx); err != nil {
				return err
			}
		case err != nil || !more:
			return err
		default:
			most = min(2*most, fetchBytes)
		}
	}
}

// page calls f for the resources of one page, and advances after. It takes memory before it reads:
// after a switch, all watches read at the same time.
func (t *Table[M]) page(ctx context.Context, in within, s selection, held *memory.Held, most int, after *string, f func(name string, m M) error) (more bool, err error) {
	const batch = 1000
	// Halve the page until it fits, down to leastBytes.
	for ; !held.Set(int64(most)); most /= 2 {
		if most <= leastBytes {
			return false, noRoom()
		}
	}
	// held already has the memory for this page. An adapter reads more: whole groups, of any size.
	reading, read := memory.Beyond(ctx, int64(most))
	defer read.Drop()
	recs, more, err := t.fetch(reading, in, *after, batch, most)
	if err != nil {
		return false, err
	}
	var size int64
	for _, r := range recs {
		size += int64(len(r.Doc))
	}
	read.Drop()
	if !held.Set(size) { // the last record may exceed the limit
		return false, noRoom()
	}
	for _, r := range rowsOf(recs) {
		name, err := nameOf(r.head)
		if err != nil {
			return false, err
		}
		m, ok, err := t.showRow(ctx, s, r)
		if err != nil {
			return false, err
		}
		if ok {
			if err := f(name, m); err != nil {
				return false, err
			}
		}
		// Even if the selection refuses it: a resumed page must not read it again.
		*after = name
	}
	return more, nil
}

// fetchBytes bounds the documents of one fetch: a thousand of the largest ones have 16 GB. A watch
// with less memory fetches less, down to leastBytes.
const (
	fetchBytes = 8 << 20
	leastBytes = 4 << 10
)

// fetch returns the first records of a scope after a name, at most limit. It ends with the record
// that reaches bytes. more reports that there may be others. fetch jumps over records outside the
// scope and does not read them.
func (t *Table[M]) fetch(ctx context.Context, in within, after string, limit, bytes int) (out []record.Record, more bool, err error) {
	if in.none {
		return nil, false, nil
	}
	for size := 0; ; {
		recs, more, err := t.list(ctx, t.cfg.Kind, in.scope.begin, after, limit-len(out), bytes-size)
		if err != nil {
			return nil, false, err
		}
		for _, rec := range recs {
			name, err := nameOf(rec)
			if err != nil {
				return nil, false, err
			}
			// Start a new list after the names outside the scope.
			if to, skip := in.scope.skip(name); skip {
				after, more = to, true
				break
			}
			after, out, size = name, append(out, rec), size+len(rec.Doc)
		}
		if !more || len(out) == limit || size >= bytes {
			return out, more, nil
		}
	}
}

// list is a list of the store, bounded in bytes if the store supports that.
func (t *Table[M]) list(ctx context.Context, kind, prefix, after string, limit, bytes int) ([]record.Record, bool, error) {
	if bounded, ok := t.store.(vrunner.BoundedStore); ok {
		return bounded.ListBounded(ctx, kind, prefix, after, limit, bytes)
	}
	recs, err := t.store.List(ctx, kind, prefix, after, limit)
	return recs, len(recs) == limit, err
}

// index returns access to the resources of a scope by declared fields. It is empty if the store has
// no indexes.
func (t *Table[M]) index(in within) listing.Index[*row] {
	store, ok := t.store.(vrunner.IndexStore)
	if !ok || in.none {
		return listing.Index[*row]{}
	}
	return listing.Index[*row]{
		Has: func(path string) bool {
			// The parts are in other records, which the index of this kind does not cover.
			return (t.cfg.Parts == nil || !t.ofParts(path)) && store.Indexed(t.cfg.Kind, path)
		},
		List: func(ctx context.Context, req record.IndexRequest) (out listing.IndexPage[*row], err error) {
			req.Prefix = in.scope.begin
			if req.Bytes <= 0 || req.Bytes > fetchBytes {
				req.Bytes = fetchBytes
			}
			page, err := store.ListIndexed(ctx, t.cfg.Kind, req)
			if err != nil {
				return out, err
			}
			out = listing.IndexPage[*row]{Done: page.Done, Last: page.Last, LastName: page.LastName, Looked: page.Looked}
			var recs []record.Record
			for i, rec := range page.Records {
				name, err := nameOf(rec)
				if err != nil {
					return out, err
				}
				// The index covers the kind. Names outside the scope are dropped here.
				if _, skip := in.scope.skip(name); !skip {
					recs, out.Values = append(recs, rec), append(out.Values, page.Values[i])
				}
			}
			out.Records = rowsOf(recs)
			return out, nil
		},
	}
}

func nameOf(rec record.Record) (string, error) {
	name, ok := rec.Key.Name()
	if !ok {
		return "", fmt.Errorf("%w: the key %s is not a string", apiversion.ErrStored, rec.Key)
	}
	return name, nil
}

// Decode returns the message of a record, without the field of its parts.
func (t *Table[M]) Decode(rec record.Record) (M, error) {
	m := t.fresh()
	if err := protodoc.Unmarshal(rec.Doc, m); err != nil {
		name, _ := rec.Key.Name()
		return m, fmt.Errorf("%s: %w: %w", name, apiversion.ErrStored, err)
	}
	return m, nil
}

// show returns the message of a record, with the parts that the selection needs. ok is false if the
// selection excludes the resource or it was deleted meanwhile.
func (t *Table[M]) show(ctx context.Context, s selection, name string, rec record.Record) (m M, ok bool, err error) {
	if m, err = t.Decode(rec); err != nil {
		return m, false, err
	}
	// Before the parts are read, since most excluded resources need none of theirs.
	if !s.head.Eval(m) {
		return m, false, nil
	}
	if !s.parts {
		return m, true, nil
	}
	m, err = t.whole(s.reading(ctx), name, rec)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return m, false, nil
	case err != nil:
		return m, false, fmt.Errorf("%s: %w", name, err)
	}
	// whole may have read a newer record, so the filter runs again.
	return m, s.head.Eval(m) && s.rest.Eval(m), nil
}
