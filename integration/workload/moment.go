package workload

import "slices"

// Moment is what was known of all records at one moment.
type Moment[S comparable] map[string]entry[S]

// Now returns what is known now. The place must not change meanwhile.
func (l *Ledger[S]) Now() Moment[S] {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := Moment[S]{}
	for key, e := range l.entries {
		at := *e
		at.maybe, at.refused = slices.Clone(e.maybe), slices.Clone(e.refused)
		m[key] = at
	}
	return m
}

// GoneBack notes that the place is as it was at a moment, by a backup that was restored. Writes
// that were acknowledged since are undone. The place must not change meanwhile. A write that is
// under way remains possible, whatever its client is told of it: it may have been done before.
func (l *Ledger[S]) GoneBack(to Moment[S]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.entries {
		then := to[key] // the zero entry is a record that was not there
		e.changes++
		under := e.maybe
		e.acked, e.loaded, e.refused = then.acked, then.loaded, nil
		e.maybe = slices.Clone(then.maybe)
		if e.writing {
			e.maybe, e.undone = append(e.maybe, under[len(under)-1]), true
		}
	}
}
