// Package workload records the requests of test or demonstration clients to a database, and the
// responses. It then checks the database's contents against them. Begin to read at Ledger.
//
// # Words
//
// A record has a key and a state. A state is any comparable value of the caller; its zero value
// means that the record is absent. A place is where records are visible, such as an API of a server
// or a collection. A print is a text that stands for a state. The caller derives it from the
// contents of a place, and from a state of the ledger for comparison. The empty print also means
// absent.
//
// # Guarantees
//
// A record must hold its last acknowledged state, or the state of a write with an unknown outcome.
// Each finding of Check is therefore a real fault, and Check reports nothing that may legitimately
// have happened. Only one client may write a record, one write after another: with several, the
// last acknowledged state would be unknown. Any number of clients may read it. All methods may be
// called concurrently.
//
// # What it does not own
//
// The package makes no calls and decides no retries. The client knows the protocol, so the client
// decides whether a failed call was refused or has an unknown outcome. The package does not count
// or time calls. For histories with several writers of one record, use porcupine, as the
// simulation's TestLinearizable does.
//
// It is not for users and may change with any version.
package workload

import (
	"math/rand/v2"
	"sync"
)

// Ledger records the states of all records of one sort.
type Ledger[S comparable] struct {
	Name string // of the sort, for reports

	mu      sync.Mutex
	entries map[string]*entry[S]
	keys    []string // of all entries, for Some
}

// entry records the possible states of one record.
type entry[S comparable] struct {
	acked   S
	maybe   []S  // states of writes with unknown outcome; if writing, the last one is in progress
	refused []S  // states of writes refused since the last acknowledged one
	writing bool // a write is in progress
	undone  bool // that write began before a restore of the database (GoneBack)
	loaded  bool // the record exists, but its content is unknown here
	changes int  // number of changes to this entry; a read uses it to detect concurrent writes
}

// New returns an empty ledger for a sort of records.
func New[S comparable](name string) *Ledger[S] {
	return &Ledger[S]{Name: name, entries: map[string]*entry[S]{}}
}

func (l *Ledger[S]) change(key string, do func(*entry[S])) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		e = &entry[S]{}
		l.entries[key] = e
		l.keys = append(l.keys, key)
	}
	// Every event counts, so that a read notices a write that both began and ended during it.
	e.changes++
	do(e)
}

// Load records an existing record, before any client runs. Another check compares its content.
// Until a write of it is acknowledged, the record only has to exist.
func (l *Ledger[S]) Load(key string) { l.change(key, func(e *entry[S]) { e.loaded = true }) }

// Put records the certain state of a record, however it was written.
func (l *Ledger[S]) Put(key string, now S) {
	l.change(key, func(e *entry[S]) { *e = entry[S]{acked: now, changes: e.changes} })
}

// Begin records a write that is about to be sent. Its state stays possible until Ack or Refuse,
// even if the client abandons it and begins another write.
func (l *Ledger[S]) Begin(key string, next S) {
	l.change(key, func(e *entry[S]) { e.maybe, e.writing, e.undone = append(e.maybe, next), true, false })
}

// Ack records that the latest write was acknowledged. No other state is possible from then on.
func (l *Ledger[S]) Ack(key string) {
	l.change(key, func(e *entry[S]) {
		if e.undone {
			e.writing, e.undone = false, false // it may have happened before the restore, so its state is only possible
			return
		}
		*e = entry[S]{acked: e.maybe[len(e.maybe)-1], changes: e.changes}
	})
}

// Refuse records that the client's latest write was refused, so it had no effect.
func (l *Ledger[S]) Refuse(key string) {
	l.change(key, func(e *entry[S]) {
		// The refused state stays known: a record that shows it is a fault of its own kind.
		last := len(e.maybe) - 1
		e.refused, e.maybe, e.writing, e.undone = append(e.refused, e.maybe[last]), e.maybe[:last], false, false
	})
}

// Unknown records that the outcome of the latest write will never be known.
func (l *Ledger[S]) Unknown(key string) {
	l.change(key, func(e *entry[S]) { e.writing, e.undone = false, false })
}

// Len returns the number of records ever loaded or written.
func (l *Ledger[S]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}

// Written reports whether a client has written a record or may have. Only then is its content
// compared.
func (l *Ledger[S]) Written(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	return e == nil || !e.loaded || len(e.maybe) > 0
}

// Some returns n random keys of known records, possibly repeated; nil if there are none.
func (l *Ledger[S]) Some(rng *rand.Rand, n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.keys) == 0 {
		return nil
	}
	some := make([]string, n)
	for i := range some {
		some[i] = l.keys[rng.IntN(len(l.keys))]
	}
	return some
}
