package vrunner

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
)

// ListWith lists like List, and calls also with the listed records. It returns them together with
// the records that also selects, all from one snapshot. kinds are the kinds that also may select.
// If the client cannot do this, the error is a *record.UnsupportedError.
func (v *View) ListWith(ctx context.Context, kind, prefix, after string, limit int, kinds []string, also func([]record.Record) ([]record.Selector, error)) (listed, with []record.Record, err error) {
	pager, err := v.pager()
	if err != nil {
		return nil, nil, err
	}
	err = fitting(ctx, func(bytes int) (int64, error) {
		err := v.readAll(ctx, withKind(kinds, kind), func(toks record.Tokens) (err error) {
			listed, with, err = pager.ListWith(ctx, toks, record.ListRequest{Token: toks[kind], Prefix: prefix, After: after, Limit: limit, Bytes: bytes}, also)
			return err
		})
		return sizeOf(listed) + sizeOf(with), err
	})
	return listed, with, err
}

func withKind(kinds []string, kind string) []string {
	if slices.Contains(kinds, kind) {
		return kinds
	}
	return append(slices.Clip(kinds), kind)
}

// SelectAt is Select with asList, and also returns the version of its snapshot. If the client
// cannot do this, the error is a *record.UnsupportedError.
func (v *View) SelectAt(ctx context.Context, sels []record.Selector) (snap record.Snapshot, err error) {
	pager, err := v.pager()
	if err != nil || len(sels) == 0 {
		return record.Snapshot{}, err
	}
	var kinds []string
	for _, sel := range sels {
		kinds = withKind(kinds, sel.Kind)
	}
	err = fitting(ctx, func(bytes int) (int64, error) {
		err := v.readAll(ctx, kinds, func(toks record.Tokens) (err error) {
			snap, err = pager.SelectAt(ctx, record.SelectRequest{Tokens: toks, Select: sels, AsList: true, Bytes: bytes})
			return err
		})
		return sizeOf(snap.Records), err
	})
	return snap, err
}

// Since returns the records of kinds that changed after a position, and the position reached. With
// the zero position it returns the present one and no changes. If the client or its database cannot
// do this, the error is a *record.UnsupportedError.
func (v *View) Since(ctx context.Context, after record.Position, kinds ...string) (changed []record.Change, now record.Position, err error) {
	pager, err := v.pager()
	if err != nil {
		return nil, now, err
	}
	specs := make([]record.KindSpec, len(kinds))
	for i, k := range kinds {
		specs[i] = record.KindSpec{Name: k}
	}
	batch, err := pager.Since(ctx, specs, after)
	return batch.Changes, batch.Pos, err
}

func (v *View) pager() (record.Pager, error) {
	pager, ok := v.client.(record.Pager)
	if !ok {
		return nil, &record.UnsupportedError{What: fmt.Sprintf("pages of %s made of several kinds", v.version), Reason: "its database cannot read them together"}
	}
	return pager, nil
}
