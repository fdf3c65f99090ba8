package memstore

import (
	"bytes"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// collection is a physical collection. Its rows are in key order, and each row keeps the states
// that a snapshot may still need.
type collection struct {
	id        string
	name      string
	fixed     bool
	validator *validator // nil: none
	mark      string     // of the present validator fence; empty: none
	label     *record.Label
	rows      []*row
	unique    map[string]*uniqueIndex // by index name
	indexes   []bson.Raw              // all specs, in the caller's form
	options   bson.Raw
	once      map[string]bool // markers of CreateOnce
	closed    map[string]bool // names and marks of fences that can no longer be set
	ended     map[string]bool // marks whose appliers can no longer write
}

// row is the history of one key, oldest state first. It is never empty.
type row struct {
	key    record.Key
	id     bson.RawValue // value of key, for comparisons
	states []state
}

// state is the content of a key from a version on. A tombstone has a guard and no document. An
// absent record has neither. The document is never modified.
type state struct {
	at    uint64
	doc   bson.Raw
	guard record.Guard
}

func (s state) live() bool      { return s.doc != nil }
func (s state) tombstone() bool { return s.doc == nil && !s.guard.IsZero() }
func (s state) absent() bool    { return s.doc == nil && s.guard.IsZero() }

// find returns the index of key in rows, or the index to insert it at. The result reports whether
// the key exists.
func (c *collection) find(key record.Key) (int, bool) {
	return slices.BinarySearchFunc(c.rows, key.Value(), func(r *row, id bson.RawValue) int {
		return record.CompareValues(r.id, id)
	})
}

// at returns the state of a key at a snapshot.
func (c *collection) at(key record.Key, clock uint64) state {
	i, found := c.find(key)
	if !found {
		return state{}
	}
	return c.rows[i].at(clock)
}

func (r *row) at(clock uint64) state {
	for _, s := range slices.Backward(r.states) {
		if s.at <= clock {
			return s
		}
	}
	return state{}
}

// put adds a state that is newer than all others. It drops states that no snapshot from oldest on
// can see.
func (c *collection) put(key record.Key, s state, oldest uint64) {
	i, found := c.find(key)
	if !found {
		// An unknown key without content needs no row.
		if s.absent() {
			return
		}
		c.rows = slices.Insert(c.rows, i, &row{key: key, id: key.Value()})
	}
	r := c.rows[i]
	r.states = append(r.states, s)
	// Keep the newest state not after oldest: a snapshot at oldest reads that one.
	keep := 0
	for keep < len(r.states)-1 && r.states[keep+1].at <= oldest {
		keep++
	}
	r.states = slices.Delete(r.states, 0, keep)
	// No snapshot can see this key any more.
	if len(r.states) == 1 && r.states[0].absent() {
		c.rows = slices.Delete(c.rows, i, i+1)
	}
}

// record returns a state in the form that a reader requested. ok is false if the reader must not
// see it.
func (r *row) record(kind string, s state, guards, keysOnly bool) (rec record.Record, ok bool) {
	// Only a reader of guards may see tombstones.
	if !s.live() && (!guards || s.absent()) {
		return record.Record{}, false
	}
	rec = record.Record{Kind: kind, Key: r.key, Doc: s.doc}
	if guards {
		rec.Guard, rec.Tombstone = s.guard, s.tombstone()
	}
	if keysOnly && s.live() {
		rec.Doc = idOnly(s.doc)
	}
	return rec, true
}

// idOnly returns a document with only the _id, in its stored type.
func idOnly(doc bson.Raw) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: doc.Lookup("_id")}})
	if err != nil {
		return doc // cannot happen: the write has read the _id
	}
	return b
}

// place returns the index of the first row behind a cursor. For an empty cursor it returns whole.
func (c *collection) place(cur record.Cursor, whole int) int {
	if len(cur) == 0 {
		return whole
	}
	i, _ := c.find(record.Key(cur))
	return i
}

// within returns the rows of a range.
func (c *collection) within(rg record.Range) []*row {
	from, to := c.place(rg.From, 0), c.place(rg.To, len(c.rows))
	if from >= to {
		return nil
	}
	return c.rows[from:to]
}

// withPrefix returns the rows whose string name begins with prefix.
func (c *collection) withPrefix(prefix string) []*row {
	// Rows are sorted, so names with one prefix are adjacent.
	from, _ := c.find(record.StringKey(prefix))
	to := from
	for to < len(c.rows) {
		name, ok := c.rows[to].key.Name()
		if !ok || !bytes.HasPrefix([]byte(name), []byte(prefix)) {
			break
		}
		to++
	}
	return c.rows[from:to]
}
