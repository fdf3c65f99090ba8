package resource

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// row is one record of a list, whose parts are read together with those of the rows that
// follow.
type row struct {
	head  record.Record
	parts []record.Record
	read  bool // head and parts are as they were at one moment
	gone  bool // it was deleted meanwhile
	next  []*row
}

func rowsOf(recs []record.Record) []*row {
	rows := make([]*row, len(recs))
	for i, rec := range recs {
		rows[i] = &row{head: rec}
	}
	for i, r := range rows {
		r.next = rows[i+1:]
	}
	return rows
}

// together is how many resources are read with one command: parts can be large, and a page
// may end, or its client leave, before they are shown.
const together = 10

// showRow is show, with the parts of several rows read at once where the store can do so.
func (t *Table[M]) showRow(ctx context.Context, s selection, r *row) (m M, ok bool, err error) {
	name, err := nameOf(r.head)
	if err != nil {
		return t.fresh(), false, err
	}
	batch, can := t.store.(vrunner.BatchStore)
	if !can || !s.parts || t.cfg.Parts == nil {
		return t.show(ctx, s, name, r.head)
	}
	if !r.read {
		if m, err = t.Decode(r.head); err != nil || !s.head.Eval(m) {
			return m, false, err
		}
		if err := t.readRows(ctx, batch, s, r); err != nil {
			return m, false, err
		}
	}
	if r.gone {
		return t.fresh(), false, nil
	}
	m, err = t.join(name, r.head, r.parts)
	// The rows of a page stay in memory as long as the page. Asked again, it would be read again.
	r.parts, r.read = nil, false
	if err != nil {
		return m, false, fmt.Errorf("%s: %w", name, err)
	}
	return m, s.head.Eval(m) && s.rest.Eval(m), nil
}

// readRows reads a row and the next ones that are wanted by what their records say. Those before it
// have been shown. Rows that are too large to be read together are read one by one.
func (t *Table[M]) readRows(ctx context.Context, batch vrunner.BatchStore, s selection, first *row) error {
	err := t.readSome(s.reading(ctx), batch, s, first, together)
	if errors.Is(err, record.ErrTooLarge) {
		err = t.readSome(s.reading(ctx), batch, s, first, 1)
	}
	return err
}

func (t *Table[M]) readSome(ctx context.Context, batch vrunner.BatchStore, s selection, first *row, most int) error {
	rows := map[string]*row{}
	var sels []record.Selector
	add := func(r *row) error {
		name, err := nameOf(r.head)
		if err != nil {
			return err
		}
		rows[name] = r
		sels = append(sels, record.Selector{Kind: t.cfg.Kind, Key: record.StringKey(name)},
			record.Selector{Kind: t.cfg.Parts.Kind, Key: record.StringKey(name + "/"), Prefix: true})
		return nil
	}
	if err := add(first); err != nil {
		return err
	}
	for _, r := range first.next {
		if len(rows) == most {
			break
		}
		if m, err := t.Decode(r.head); err == nil && s.head.Eval(m) { // an error is that row's own
			if err := add(r); err != nil {
				return err
			}
		}
	}
	recs, err := batch.Select(ctx, sels, true)
	if err != nil {
		return err
	}
	for _, r := range rows {
		r.read, r.gone, r.parts = true, true, nil
	}
	for _, rec := range recs {
		name, err := nameOf(rec)
		if err != nil {
			return err
		}
		if rec.Kind != t.cfg.Kind {
			name = name[:max(strings.LastIndex(name, "/"), 0)]
		}
		r := rows[name]
		switch {
		case r == nil: // in a range, and a part of none
		case rec.Kind == t.cfg.Kind:
			r.head, r.gone = rec, false
		default:
			r.parts = append(r.parts, rec)
		}
	}
	return nil
}
