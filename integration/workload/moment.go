package workload

import "slices"

// Moment is a copy of everything that a ledger knows at one moment.
type Moment[S comparable] map[string]entry[S]

// Now returns the present knowledge. The database must not change during the call.
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

// GoneBack records that the database was restored from a backup of a moment. Writes acknowledged
// since then are undone. A write in progress stays possible, whatever answer its client gets,
// because it may have happened before the restore. The database must not change during the call.
func (l *Ledger[S]) GoneBack(to Moment[S]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.entries {
		then := to[key] // the zero entry is an absent record
		e.changes++
		under := e.maybe
		e.acked, e.loaded, e.refused = then.acked, then.loaded, nil
		e.maybe = slices.Clone(then.maybe)
		if e.writing {
			e.maybe, e.undone = append(e.maybe, under[len(under)-1]), true
		}
	}
}
