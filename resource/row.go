package resource

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// row is one record of a list. Its parts are read together with the parts of the following rows.
type row struct {
	head  record.Record
	parts []record.Record
	read  bool // head and parts are from one snapshot
	gone  bool // deleted after the list
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

// together is the number of resources that one command reads. It is small because parts can be
// large, and because the page may end, or the client leave, before they are shown.
const together = 10

// showRow is show, but reads the parts of several rows at once if the store supports that.
func (t *Table[M]) showRow(ctx context.Context, s selection, r *row) (m M, ok bool, err error) {
	name, err := nameOf(r.head)
	if err != nil {
		return t.fresh(), false, err
	}
	batch, can := t.store.(vrunner.BatchStore)
	// Without parts, or without a command for several records, rows are read one by one.
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
	// The rows of a page stay in memory as long as the page, so the parts are dropped here. A
	// second call reads them again.
	r.parts, r.read = nil, false
	if err != nil {
		return m, false, fmt.Errorf("%s: %w", name, err)
	}
	return m, s.head.Eval(m) && s.rest.Eval(m), nil
}

// readRows reads a row and the following rows that the filter accepts. The rows before it have been
// shown. If the rows are together too large for one command, it reads the first one alone.
func (t *Table[M]) readRows(ctx context.Context, batch vrunner.BatchStore, s selection, first *row) error {
	err := t.readSome(s.reading(ctx), batch, s, first, together)
	// Parts can be large. Only a single resource that is too large is an error.
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
		if m, err := t.Decode(r.head); err == nil && s.head.Eval(m) { // errors: reported by its own row
			if err := add(r); err != nil {
				return err
			}
		}
	}
	// One snapshot for all, so that the parts of each resource match its record.
	recs, err := batch.Select(ctx, sels, true)
	if err != nil {
		return err
	}
	// A row that the snapshot does not return was deleted.
	for _, r := range rows {
		r.read, r.gone, r.parts = true, true, nil
	}
	for _, rec := range recs {
		name, err := nameOf(rec)
		if err != nil {
			return err
		}
		// The key of a part is the resource's name, a slash and an id.
		if rec.Kind != t.cfg.Kind {
			name = name[:max(strings.LastIndex(name, "/"), 0)]
		}
		r := rows[name]
		switch {
		case r == nil: // in the range, but a part of no row
		case rec.Kind == t.cfg.Kind:
			r.head, r.gone = rec, false
		default:
			r.parts = append(r.parts, rec)
		}
	}
	return nil
}
