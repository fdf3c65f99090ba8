package app

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// state is what a key holds, as each version shows it: canonical prints of the content
// that can be compared. The zero state is absence.
type state struct{ v1, v2 string }

func (s state) absent() bool { return s == state{} }

// as returns the print of one version.
func (s state) as(version string) string {
	if version == newVersion {
		return s.v2
	}
	return s.v1
}

// entry is what is known of one key.
type entry struct {
	acked state
	// maybe are the states of writes that are under way, or whose outcome is unknown.
	maybe []state
	// plain says that nobody has written the key since it was loaded: what it holds is
	// for the comparison through the transform.
	plain bool
}

// model is what clients were told, by key. One client writes a key; its methods may be
// called concurrently.
type model struct {
	name string

	mu      sync.Mutex
	entries map[string]*entry
	order   []string // all keys, for picking
}

func newModel(name string) *model { return &model{name: name, entries: map[string]*entry{}} }

// load notes a key that is there before any client runs.
func (m *model) load(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries[key] = &entry{plain: true}
	m.order = append(m.order, key)
}

// begin notes a write that is about to be sent.
func (m *model) begin(key string, next state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	if e == nil {
		e = &entry{}
		m.entries[key] = e
		m.order = append(m.order, key)
	}
	e.maybe = append(e.maybe, next)
}

// ack notes that a write was acknowledged: nothing else is possible any longer.
func (m *model) ack(key string, now state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	e.acked, e.maybe, e.plain = now, nil, false
}

// known returns the state of a key if it is certain: no write is under way.
func (m *model) known(key string) (state, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	if e == nil {
		return state{}, true
	}
	return e.acked, len(e.maybe) == 0 && !e.plain
}

// findings are the keys at which what is there is not what clients were told.
type findings struct {
	lost, duplicated, resurrected map[string]bool
	note                          func(string)
	late                          map[string]bool // keys that the version that follows had a moment later
	lateFor                       time.Duration   // until the last of them was there
}

// none reports that nothing was found.
func (f *findings) none() bool { return len(f.lost)+len(f.duplicated)+len(f.resurrected) == 0 }

// noteLate counts what is not yet as it was acknowledged.
func (f *findings) noteLate(wrong *findings) {
	for _, set := range []map[string]bool{wrong.lost, wrong.duplicated, wrong.resurrected} {
		for key := range set {
			f.late[key] = true
		}
	}
}

func newFindings(note func(string)) *findings {
	return &findings{lost: map[string]bool{}, duplicated: map[string]bool{}, resurrected: map[string]bool{}, late: map[string]bool{}, note: note}
}

func (f *findings) add(set map[string]bool, what, model, key, detail string) {
	name := model + " " + key
	if !set[name] && len(set) < mostProblems {
		f.note(fmt.Sprintf("%s: %s: %s", what, name, detail))
	}
	set[name] = true
}

// sighting is a key as it was seen in one place.
type sighting struct {
	print  string // in the form of the place that was looked at; never empty
	copies int
}

// form is how a place shows a state; absence is the empty string.
type form func(state) string

func formOf(version string) form { return func(s state) string { return s.as(version) } }

// check compares what one place holds with what clients were told. seen has the keys that
// are there, place is for people.
func (m *model) check(seen map[string]sighting, as form, place string, f *findings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, s := range seen {
		e, ok := m.entries[key]
		switch {
		case !ok:
			f.add(f.duplicated, "duplicated", m.name, key, "nobody has written it, and it is in "+place)
			continue
		case s.copies > 1:
			f.add(f.duplicated, "duplicated", m.name, key, fmt.Sprintf("%d times in %s", s.copies, place))
		}
		if e.allows(s.print, as) {
			continue
		}
		if e.acked.absent() && !e.mayExist() {
			f.add(f.resurrected, "resurrected", m.name, key, "deleted, and it is in "+place)
			continue
		}
		f.add(f.lost, "lost", m.name, key, fmt.Sprintf("%s does not hold the last acknowledged state: want %.200q, has %.200q", place, as(e.acked), s.print))
	}
	for key, e := range m.entries {
		if _, there := seen[key]; !there && !e.allows("", as) {
			f.add(f.lost, "lost", m.name, key, "it is not in "+place)
		}
	}
}

// allows reports whether a print (empty: absence) is the acknowledged state, or one of
// those that unknown outcomes leave possible. A key that nobody has written only has to
// be there.
func (e *entry) allows(print string, as form) bool {
	acked := as(e.acked) == print
	if e.plain {
		acked = print != ""
	}
	return acked || slices.ContainsFunc(e.maybe, func(s state) bool { return as(s) == print })
}

// mayExist reports whether a write of unknown outcome would have created the key.
func (e *entry) mayExist() bool {
	return slices.ContainsFunc(e.maybe, func(s state) bool { return !s.absent() })
}

// written reports whether a client has written a key, or may have.
func (m *model) written(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	return e == nil || !e.plain || len(e.maybe) > 0
}

// some returns up to n random keys.
func (m *model) some(rng *rand.Rand, n int) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.order) == 0 {
		return nil
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = m.order[rng.IntN(len(m.order))]
	}
	return keys
}
