// Package workload remembers what the clients of a test or a demonstration asked a database
// for and what they were told, and judges with it what is found there.
//
// # Words
//
// A record is known by a key; what it holds is a state, any comparable value of the caller,
// whose zero value means that the record is absent. A place (an API of a server, a collection)
// shows a state as a print, a text that the caller derives from what it finds there, and from a
// state of the ledger to compare with it. The empty print means absence too.
//
// # What it guarantees
//
// A record must hold its last acknowledged state, or that of a write whose outcome is unknown.
// So what Check reports did go wrong, and nothing is reported of what may have happened. One
// client writes a record, one write after another: with several, the last acknowledged state
// would not be known. Any number may read it. All methods may be called concurrently.
//
// # What it does not own
//
// It makes no calls and decides nothing about retries. Whether a failed call was refused or
// has an unknown outcome is for the client to say, who knows the protocol. It does not count
// or time calls. Histories in which several clients write one record are for porcupine, as in
// the simulation's TestLinearizable.
//
// It is not for users and may change with any version.
package workload

import (
	"math/rand/v2"
	"sync"
)

// Ledger is what is known of the records of one sort.
type Ledger[S comparable] struct {
	Name string // of the sort, for people

	mu      sync.Mutex
	entries map[string]*entry[S]
	keys    []string // of all entries, to pick from
}

// entry is what is known of one record.
type entry[S comparable] struct {
	acked   S
	maybe   []S  // of writes whose outcome is unknown; the last is under way if writing
	refused []S  // of writes that were refused since the acknowledged one
	writing bool // a write was begun, and its client was not told yet what became of it
	undone  bool // that write was begun before the place went back (GoneBack)
	loaded  bool // nobody here knows what it holds, only that it is there
	changes int  // how often any of this changed: whether a read had the record to itself
}

// New returns a ledger of a sort of records, which knows of none yet.
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
	e.changes++
	do(e)
}

// Load notes a record that is there before any client runs, with a content that is for
// somebody else to compare: until a write of it is acknowledged, it only has to be there.
func (l *Ledger[S]) Load(key string) { l.change(key, func(e *entry[S]) { e.loaded = true }) }

// Put notes what a record certainly holds, by whatever means it was written.
func (l *Ledger[S]) Put(key string, now S) {
	l.change(key, func(e *entry[S]) { *e = entry[S]{acked: now, changes: e.changes} })
}

// Begin notes a write that is about to be sent. It remains possible until Ack or Refuse, also
// when its client does not return to it and begins another one.
func (l *Ledger[S]) Begin(key string, next S) {
	l.change(key, func(e *entry[S]) { e.maybe, e.writing, e.undone = append(e.maybe, next), true, false })
}

// Ack notes that the write begun last was acknowledged: nothing else is possible any longer.
func (l *Ledger[S]) Ack(key string) {
	l.change(key, func(e *entry[S]) {
		if e.undone {
			e.writing, e.undone = false, false // it may have been done before the place went back
			return
		}
		*e = entry[S]{acked: e.maybe[len(e.maybe)-1], changes: e.changes}
	})
}

// Refuse notes that the write begun last was not done, as its client was told.
func (l *Ledger[S]) Refuse(key string) {
	l.change(key, func(e *entry[S]) {
		last := len(e.maybe) - 1
		e.refused, e.maybe, e.writing, e.undone = append(e.refused, e.maybe[last]), e.maybe[:last], false, false
	})
}

// Unknown notes that nobody will learn what became of the write begun last.
func (l *Ledger[S]) Unknown(key string) {
	l.change(key, func(e *entry[S]) { e.writing, e.undone = false, false })
}

// Len returns how many records have ever been loaded or written.
func (l *Ledger[S]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}

// Written reports whether a client has written a record, or may have: whether what it holds
// is compared.
func (l *Ledger[S]) Written(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	return e == nil || !e.loaded || len(e.maybe) > 0
}

// Some returns n random keys of records that are or were there; none if there are none.
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
