package adapt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Write applies all mutations of records shown, or none, in one write of the stored Store. It
// writes or checks every stored record of the affected groups, so a group of many records costs as
// many conditions.
func (a *Adapter) Write(ctx context.Context, ms []record.Mutation) error {
	// Refuse invalid mutations before reading anything.
	for _, m := range ms {
		if err := checkMutation(m); err != nil {
			return fmt.Errorf("%s %s: %w", m.Kind, m.Key, err)
		}
		if _, err := a.groupOf(m.Kind, m.Key); err != nil {
			return err
		}
	}
	return again(ctx, "what is written", func() error { return a.try(ctx, ms) })
}

// checkMutation refuses a mutation that a store would refuse.
func checkMutation(m record.Mutation) error {
	conditions := 0
	for _, set := range []bool{m.Absent, m.Exists, m.Match != nil} {
		if set {
			conditions++
		}
	}
	switch {
	case m.Key == "":
		return errors.New("mutation has no key")
	case conditions > 1:
		return errors.New("mutation has more than one condition")
	case m.Doc == nil && m.Absent:
		return errors.New("mutation deletes what must be absent")
	case m.Doc == nil:
		return nil
	}
	key, err := record.KeyOfDoc(m.Doc)
	if err == nil && key != m.Key {
		err = fmt.Errorf("document has the _id %s", key)
	}
	return err
}

// edit is one group during a write.
type edit struct {
	id            transform.GroupID
	first         record.Mutation // the first mutation of the group, for errors
	stored        []record.Record // the stored records as read
	before, after []record.Record // the records shown
}

// try reads, changes and writes once.
func (a *Adapter) try(ctx context.Context, ms []record.Mutation) error {
	var edits []*edit
	for _, m := range ms {
		id, err := a.groupOf(m.Kind, m.Key)
		if err != nil {
			return err
		}
		// Several mutations may be about one group. Read it once, and apply them in order.
		i := slices.IndexFunc(edits, func(e *edit) bool { return e.id == id })
		if i < 0 {
			stored, err := a.load(ctx, id)
			var before []record.Record
			if err == nil {
				before, err = a.project(id, stored)
			}
			if err != nil {
				return aboutWrite(m, err)
			}
			i, edits = len(edits), append(edits, &edit{id: id, first: m, stored: stored, before: before, after: slices.Clone(before)})
		}
		if err := edits[i].apply(m); err != nil {
			return fmt.Errorf("%s %s: %w", m.Kind, m.Key, err)
		}
	}
	var out []record.Mutation
	for _, e := range edits {
		// Transform each group only after all its mutations.
		want, err := a.back(e)
		if err != nil {
			return aboutWrite(e.first, err)
		}
		out = append(out, difference(e.stored, want)...)
	}
	if len(out) == 0 {
		return nil // deletes of absent records
	}
	err := a.stored.Write(ctx, out)
	for _, condition := range []error{record.ErrMismatch, record.ErrExists, record.ErrNotFound} {
		if errors.Is(err, condition) {
			// The conditions come from our own read. If one fails, the stored records changed
			// since, so read again before reporting a conflict.
			return errRaced
		}
	}
	return aboutWrite(edits[0].first, err)
}

// aboutWrite applies about to a mutation's error. It keeps errRaced, which only leads to a retry.
func aboutWrite(m record.Mutation, err error) error {
	if errors.Is(err, errRaced) {
		return err
	}
	return about(m.Kind, m.Key.String(), err)
}

// apply applies a mutation to the records shown, if its condition holds.
func (e *edit) apply(m record.Mutation) error {
	i := find(e.after, m.Kind, m.Key)
	switch {
	case m.Absent && i >= 0:
		return record.ErrExists
	case (m.Exists || m.Match != nil) && i < 0:
		return record.ErrNotFound
	// Conditions see the effect of earlier mutations of the same write.
	case m.Match != nil && !m.Match.Holds(e.after[i].Doc):
		return record.ErrMismatch
	}
	switch {
	case m.Doc != nil && i >= 0:
		e.after[i].Doc = m.Doc
	case m.Doc != nil:
		e.after = append(e.after, record.Record{Kind: m.Kind, Key: m.Key, Doc: m.Doc})
		transform.SortRecords(e.after)
	case i >= 0:
		e.after = slices.Delete(e.after, i, i+1)
	}
	return nil
}

// back computes the stored records that show the result of the edit.
func (a *Adapter) back(e *edit) ([]record.Record, error) {
	if slices.EqualFunc(e.before, e.after, same) {
		// Without a change there is no transformation: stored data that the version shown lacks
		// stays as it is.
		return e.stored, nil
	}
	// Any record names the group. A deleted group has only its former records.
	first := append(e.after, e.before...)[0]
	id, ok, err := a.keep.GroupOf(first.Kind, first.Key)
	if !ok && err == nil {
		err = errors.New("no transformer takes it")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w", ErrTransform, first.Kind, first.Key, err)
	}
	have := transform.Group{Name: id.Name}
	if a.keep.NeedsHave(id) {
		have.Records = e.stored
	}
	want, err := a.keep.Transform(id, transform.Group{Name: id.Name, Records: e.after}, have)
	if err != nil {
		return nil, fmt.Errorf("%w: keep %s as %s: %w", ErrTransform, transform.ShowGroup(id.Name), a.keep.To(), err)
	}
	// Show the result again: only that proves that nothing of the write is lost.
	shown, err := a.project(e.id, want)
	if err != nil {
		return nil, err
	}
	return want, a.loss(e.after, shown)
}

// loss returns a *LossError if the result does not show exactly the written records.
func (a *Adapter) loss(written, shown []record.Record) error {
	for _, w := range written {
		i := find(shown, w.Kind, w.Key)
		if i < 0 {
			return &LossError{Kind: w.Kind, Key: w.Key, Version: a.keep.To()}
		}
		if path, differ := differ(w.Doc, shown[i].Doc); differ {
			return &LossError{Kind: w.Kind, Key: w.Key, Field: path, Version: a.keep.To()}
		}
	}
	for _, s := range shown {
		if find(written, s.Kind, s.Key) < 0 {
			return &LossError{Kind: s.Kind, Key: s.Key, Version: a.keep.To()} // its absence cannot be stored
		}
	}
	return nil
}

// difference returns the mutations from the records read to the wanted records. Every record is
// changed or checked, so the write fails if the group is not as it was read.
func difference(have, want []record.Record) []record.Mutation {
	var ms []record.Mutation
	for _, h := range have {
		m := record.Mutation{Kind: h.Kind, Key: h.Key, Match: record.MatchDoc(h.Doc)}
		if i := find(want, h.Kind, h.Key); i >= 0 {
			m.Doc = want[i].Doc // only a check if the document is equal
		}
		ms = append(ms, m)
	}
	for _, w := range want {
		// A record that was added since the read must not be overwritten.
		if find(have, w.Kind, w.Key) < 0 {
			ms = append(ms, record.Mutation{Kind: w.Kind, Key: w.Key, Doc: w.Doc, Absent: true})
		}
	}
	return ms
}
