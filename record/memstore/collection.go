package memstore

import (
	"bytes"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// collection is a physical collection: its rows in key order, each with the states that
// a snapshot may still ask for.
type collection struct {
	id        string
	name      string
	fixed     bool
	validator *validator // nil: none
	mark      string     // of the validator fence in force; empty: none
	label     *record.Label
	rows      []*row
	unique    map[string]*uniqueIndex // by index name
	indexes   []bson.Raw              // all of them, as given
	options   bson.Raw
	once      map[string]bool // markers of what was created once
	closed    map[string]bool // names and marks of fences that were given up
}

// row is one key's history, oldest state first, never empty.
type row struct {
	key    record.Key
	id     bson.RawValue // of key, for comparisons
	states []state
}

// state is what a key holds from a version on. A tombstone is a guard without a
// document; neither is an absent record. The document is never modified.
type state struct {
	at    uint64
	doc   bson.Raw
	guard record.Guard
}

func (s state) live() bool      { return s.doc != nil }
func (s state) tombstone() bool { return s.doc == nil && !s.guard.IsZero() }
func (s state) absent() bool    { return s.doc == nil && s.guard.IsZero() }

// find returns the place of key in rows and whether it is there.
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

// put adds a state that is newer than all others, and drops the states that no
// snapshot from oldest on can see.
func (c *collection) put(key record.Key, s state, oldest uint64) {
	i, found := c.find(key)
	if !found {
		if s.absent() {
			return
		}
		c.rows = slices.Insert(c.rows, i, &row{key: key, id: key.Value()})
	}
	r := c.rows[i]
	r.states = append(r.states, s)
	keep := 0
	for keep < len(r.states)-1 && r.states[keep+1].at <= oldest {
		keep++
	}
	r.states = slices.Delete(r.states, 0, keep)
	if len(r.states) == 1 && r.states[0].absent() {
		c.rows = slices.Delete(c.rows, i, i+1)
	}
}

// record shows a state as a reader asked for it. ok is false for what it must not see.
func (r *row) record(kind string, s state, guards, keysOnly bool) (rec record.Record, ok bool) {
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

// idOnly is the document with nothing but its _id, in the type that it was stored with.
func idOnly(doc bson.Raw) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: doc.Lookup("_id")}})
	if err != nil {
		return doc // cannot be: the _id was read when the document was written
	}
	return b
}

// place is the index of the first row behind a cursor; empty gives whole.
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
