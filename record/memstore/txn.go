package memstore

import (
	"bytes"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

// ErrRejected is what an application gets whose write a validator, a view or a write
// block keeps out, and what stands in a Result that is Refused by a validator.
var ErrRejected = record.Refuse(errors.New("the database refuses the write"))

// errTooLarge stands in a Result of a document over the limit.
var errTooLarge = fmt.Errorf("%w: a document exceeds %d bytes", record.ErrOversize, maxDocument)

// txn collects the writes of one atomic commit. It lives within one hold of the
// cluster's lock; later statements see earlier ones.
type txn struct {
	cluster *Cluster
	db      *database
	touched []*collection // in order of first touch, for a stable log
	writes  map[*collection]*writes
	applies bool // it is one of Apply
}

// writes are the new states of one collection, in the order in which keys were first
// written.
type writes struct {
	order  []record.Key
	states map[record.Key]state
}

func (s *Store) newTxn() *txn {
	return &txn{cluster: s.cluster, db: s.db, writes: map[*collection]*writes{}}
}

// get returns what the key holds as this transaction sees it.
func (t *txn) get(col *collection, key record.Key) state {
	if w := t.writes[col]; w != nil {
		if s, ok := w.states[key]; ok {
			return s
		}
	}
	return col.at(key, t.cluster.clock)
}

// set gives the key a new state. The document is copied: the caller may reuse its bytes.
func (t *txn) set(col *collection, key record.Key, s state) {
	w := t.writes[col]
	if w == nil {
		w = &writes{states: map[record.Key]state{}}
		t.writes[col] = w
		t.touched = append(t.touched, col)
	}
	if _, again := w.states[key]; !again {
		w.order = append(w.order, key)
	}
	s.doc = record.Stored(bytes.Clone(s.doc))
	w.states[key] = s
}

// commit checks everything and then does everything, at one new version. bypass passes
// fences by validator: behind one the kind is the target of the rollback.
func (t *txn) commit(bypass bool) error {
	for _, col := range t.touched {
		if err := t.check(col, bypass); err != nil {
			return err
		}
	}
	now := t.cluster.clock
	t.cluster.clock++
	for _, col := range t.touched {
		w := t.writes[col]
		for _, ix := range col.unique {
			ix.move(col, w, now)
		}
		for _, key := range w.order {
			before, after := col.at(key, now), w.states[key]
			after.at = t.cluster.clock
			col.put(key, after, t.cluster.oldestSnapshot())
			t.log(col, key, before, after)
		}
	}
	return nil
}

func (t *txn) check(col *collection, bypass bool) error {
	w := t.writes[col]
	for _, key := range w.order {
		doc := w.states[key].doc
		if doc == nil {
			continue
		}
		if col.label != nil && !col.label.On(doc) {
			return fmt.Errorf("record %s: %w", key, record.ErrLabel)
		}
		if len(doc) > maxDocument {
			return fmt.Errorf("record %s: %w", key, errTooLarge)
		}
		if fenced := col.mark != "" && bypass; !fenced && !col.validator.accepts(doc) {
			return fmt.Errorf("record %s: %w", key, ErrRejected)
		}
	}
	for _, ix := range col.unique {
		if err := ix.check(w); err != nil {
			if c := new(conflict); errors.As(err, &c) {
				c.in = col.name
			}
			return err
		}
	}
	return nil
}

// log notes a change of the documents. Guards of fixed-name kinds are next to them, so
// that a tombstone of a name that has no document changes nothing that is watched.
func (t *txn) log(col *collection, key record.Key, before, after state) {
	if !before.live() && !after.live() && (col.fixed || after.absent()) {
		return
	}
	deleted := !after.live() && (col.fixed || after.absent())
	e := entry{db: t.db, collection: col.name, id: col.id, key: key, deleted: deleted}
	switch {
	case !col.fixed && !after.guard.IsZero():
		e.origin, e.guard = record.GuardedChange, after.guard
	case col.fixed && t.applies:
		e.origin, e.guard = record.AppliedChange, after.guard
	}
	t.cluster.append(e)
}
