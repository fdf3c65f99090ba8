package memstore

import (
	"bytes"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

// ErrRejected is the error of an application's write that a validator, a view or a write block
// refuses. It is also the reason in a Result that a validator Refused.
var ErrRejected = record.Refuse(errors.New("the database refuses the write"))

// errTooLarge is the reason in a Result for a document over the limit.
var errTooLarge = fmt.Errorf("%w: a document exceeds %d bytes", record.ErrOversize, maxDocument)

// txn collects the writes of one atomic commit. The caller holds the cluster's lock from its
// creation to its commit. Later statements see earlier ones.
type txn struct {
	cluster *Cluster
	db      *database
	touched []*collection // in order of the first write, for a stable log
	writes  map[*collection]*writes
	applies bool // it belongs to an Apply
}

// writes holds the new states of one collection, in the order of the first write to each key.
type writes struct {
	order  []record.Key
	states map[record.Key]state
}

func (s *Store) newTxn() *txn {
	return &txn{cluster: s.cluster, db: s.db, writes: map[*collection]*writes{}}
}

// get returns the state of a key as this transaction sees it.
func (t *txn) get(col *collection, key record.Key) state {
	if w := t.writes[col]; w != nil {
		if s, ok := w.states[key]; ok {
			return s
		}
	}
	return col.at(key, t.cluster.clock)
}

// set gives a key a new state. It copies the document, because the caller may reuse the bytes.
func (t *txn) set(col *collection, key record.Key, s state) {
	w := t.writes[col]
	if w == nil {
		w = &writes{states: map[record.Key]state{}}
		t.writes[col] = w
		t.touched = append(t.touched, col)
	}
	// The log has one change for each key, in the order of the first write.
	if _, again := w.states[key]; !again {
		w.order = append(w.order, key)
	}
	s.doc = record.Stored(bytes.Clone(s.doc))
	w.states[key] = s
}

// commit checks all writes and then makes them at one new version. bypass skips the validator of a
// fence: a fenced kind is the target of the reverse direction, and Apply must write to it.
func (t *txn) commit(bypass bool) error {
	for _, col := range t.touched {
		if err := t.check(col, bypass); err != nil {
			return err
		}
	}
	// All checks have passed. From here on nothing may fail, or a part would remain.
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
		// The label counts for every writer, whatever token it has.
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
				// Apply needs the collection to name the holder's kind.
				c.in = col.name
			}
			return err
		}
	}
	return nil
}

// log adds a change of a document to the log. Guards of fixed-name kinds lie next to their
// documents. A new tombstone without a former document is therefore no change that a stream sees.
func (t *txn) log(col *collection, key record.Key, before, after state) {
	if !before.live() && !after.live() && (col.fixed || after.absent()) {
		return
	}
	deleted := !after.live() && (col.fixed || after.absent())
	e := entry{db: t.db, collection: col.name, id: col.id, key: key, deleted: deleted}
	switch {
	// A guard inside the record is weaker evidence than a common commit.
	case !col.fixed && !after.guard.IsZero():
		e.origin, e.guard = record.GuardedChange, after.guard
	// Only an Apply writes a guard next to the document.
	case col.fixed && t.applies:
		e.origin, e.guard = record.AppliedChange, after.guard
	}
	t.cluster.append(e)
}
