package adapt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Select returns the selected records as the version shown has them, in no particular order. They are
// all from one moment if the Store is a BatchStore and they are of at most 1000 groups. Otherwise each
// group is as it was at one moment. A selector with a prefix must be within one group. The error for
// another one is a *record.UnsupportedError.
func (a *Adapter) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	var ids []transform.GroupID
	wanted := map[transform.GroupID][]record.Selector{}
	for _, sel := range sels {
		id, err := a.selected(sel)
		// Nothing stored could show it.
		if errors.Is(err, ErrTransform) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if wanted[id] == nil {
			ids = append(ids, id)
		}
		wanted[id] = append(wanted[id], sel)
	}
	found, err := a.loadAll(ctx, ids, asList)
	if err != nil {
		return nil, err
	}
	stored := make([][]record.Record, len(ids))
	for i, id := range ids {
		stored[i] = found[id]
	}
	shown, err := a.projectAll(ids, stored)
	if err != nil {
		return nil, err
	}
	var out []record.Record
	for i, id := range ids {
		for _, rec := range shown[i] {
			if slices.ContainsFunc(wanted[id], func(sel record.Selector) bool { return selects(sel, rec) }) {
				out = append(out, rec)
			}
		}
	}
	return out, nil
}

// selected returns the group that has all records of a selector.
func (a *Adapter) selected(sel record.Selector) (transform.GroupID, error) {
	if !sel.Prefix {
		return a.groupOf(sel.Kind, sel.Key)
	}
	prefix, _ := sel.Key.Name()
	id, ok := a.within(sel.Kind, prefix)
	if !ok {
		return id, a.unsupported(sel.Kind, fmt.Sprintf("the records that begin with %q are of several groups", prefix))
	}
	return id, nil
}

// selects reports whether a selector selects a record.
func selects(sel record.Selector, rec record.Record) bool {
	if sel.Kind != rec.Kind {
		return false
	}
	if !sel.Prefix {
		return sel.Key == rec.Key
	}
	prefix, _ := sel.Key.Name()
	name, ok := rec.Key.Name()
	return ok && strings.HasPrefix(name, prefix)
}
