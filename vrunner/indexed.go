package vrunner

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
)

// IndexStore is a Store that can read records by declared fields. A View is one. An adapter is one
// for the fields that it finds in the stored records.
type IndexStore interface {
	Store
	// Indexed reports whether a field of a kind is declared.
	Indexed(kind, field string) bool
	// ListIndexed reads by a declared field. The store sets the request's Token. After
	// record.ErrNoIndex the caller reads without the index.
	ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (record.IndexPage, error)
}

// BoundedStore is a Store that can limit its lists in bytes.
type BoundedStore interface {
	Store
	// ListBounded is List with a limit of bytes: it ends with the record that reaches the limit.
	// more reports that either limit ended the list, so that there may be more records.
	ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error)
}

var (
	_ IndexStore   = (*View)(nil)
	_ BoundedStore = (*View)(nil)
)

// Indexed reports whether Database.Indexed declares a field of a kind.
func (v *View) Indexed(kind, field string) bool { return slices.Contains(v.indexed[kind], field) }

// ListIndexed returns live records of a kind by a declared field. It returns record.ErrNoIndex if
// the client has no indexes.
func (v *View) ListIndexed(ctx context.Context, kind string, req record.IndexRequest) (page record.IndexPage, err error) {
	reader, ok := v.client.(record.IndexReader)
	if !ok {
		return page, fmt.Errorf("%s by %s: %w", kind, req.Field, record.ErrNoIndex)
	}
	r := memory.ReadsOf(ctx)
	if r.Counts() && (req.Bytes <= 0 || req.Bytes > pieceBytes) {
		req.Bytes = pieceBytes // a shorter page is fine: it says that more follow
	}
	err = v.read(ctx, kind, func(t record.Token) (err error) {
		req.Token = t
		page, err = reader.ListIndexed(ctx, req)
		return err
	})
	if err != nil {
		return page, err
	}
	return page, take(r, sizeOf(page.Records))
}

// ListBounded is List with a limit of bytes: it ends with the record that reaches the limit. more
// reports that either limit ended the list, so that there may be more records.
func (v *View) ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error) {
	return v.list(ctx, kind, prefix, after, limit, bytes)
}
