package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind classifies a finding.
type Kind string

// Kinds of findings. A duplicated record can have a second finding in the same place.
const (
	Lost        Kind = "lost"        // the last acknowledged state is missing; an earlier, other or no state is there
	Resurrected Kind = "resurrected" // it exists after an acknowledged delete
	Refused     Kind = "refused"     // it has the state of a refused write
	Duplicated  Kind = "duplicated"  // it exists more than once
	Foreign     Kind = "foreign"     // no client has ever written it
	Stale       Kind = "stale"       // a read returned a state that was not its state then
)

// Finding is one fault of one record.
type Finding struct {
	Kind   Kind
	Record string // sort and key
	Detail string
}

func (f Finding) Error() string { return fmt.Sprintf("%s: %s: %s", f.Kind, f.Record, f.Detail) }

// Findings lists all faults in one place, ordered by record.
type Findings []Finding

// Err returns nil without findings, else an error with the first ten in full.
func (fs Findings) Err() error {
	const full = 10
	if len(fs) == 0 {
		return nil
	}
	texts := []string{fmt.Sprintf("%d findings", len(fs))}
	for _, f := range fs[:min(full, len(fs))] {
		texts = append(texts, f.Error())
	}
	return errors.New(strings.Join(texts, "\n"))
}

// Seen holds the records of one place, by key.
type Seen map[string]sighting

type sighting struct {
	print  string
	copies int
}

// Add adds a record found in the place. A record added twice is duplicated.
func (s Seen) Add(key, print string) { s[key] = sighting{print, s[key].copies + 1} }

// Check compares all records of a place with the ledger. place is its name for reports. as returns
// the print of a state in this place; Check never calls it for an absent record.
func (l *Ledger[S]) Check(place string, seen Seen, as func(S) string) Findings {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found Findings
	add := func(kind Kind, key, format string, args ...any) {
		found = append(found, Finding{kind, l.Name + " " + key, fmt.Sprintf(format, args...)})
	}
	for key, s := range seen {
		// An entry exists from Begin on, so even a write of unknown outcome makes its record known.
		e, ok := l.entries[key]
		if !ok {
			add(Foreign, key, "nobody has written it, and %s holds %.200q", place, s.print)
			continue
		}
		if s.copies > 1 {
			add(Duplicated, key, "it is %d times in %s", s.copies, place)
		}
		if kind := e.judge(s.print, as); kind != "" {
			add(kind, key, "%s holds %.200q, acknowledged is %.200q", place, s.print, printOf(e.acked, as))
		}
	}
	// Records that the place lacks need a check of their own: they may be lost.
	for key, e := range l.entries {
		if _, there := seen[key]; there {
			continue
		}
		if kind := e.judge("", as); kind != "" {
			add(kind, key, "it is not in %s, acknowledged is %.200q", place, printOf(e.acked, as))
		}
	}
	// Maps have random order, and reports must be comparable.
	slices.SortStableFunc(found, func(a, b Finding) int { return strings.Compare(a.Record, b.Record) })
	return found
}

// printOf returns the print of a state; "" for absence.
func printOf[S comparable](s S, as func(S) string) string {
	var absent S
	if s == absent {
		return ""
	}
	return as(s)
}

// judge returns the fault of a record that a place shows as print, or "" if the print is possible.
func (e *entry[S]) judge(print string, as func(S) string) Kind {
	is := func(s S) bool { return printOf(s, as) == print }
	switch {
	// A possible state wins over a refused one: two writes may have had the same state.
	case e.loaded && print != "", !e.loaded && is(e.acked), slices.ContainsFunc(e.maybe, is):
		return ""
	case slices.ContainsFunc(e.refused, is):
		return Refused
	case !e.mayExist():
		return Resurrected
	default:
		return Lost
	}
}

// mayExist reports whether the record may exist, by its acknowledged state or a write with unknown
// outcome.
func (e *entry[S]) mayExist() bool {
	var absent S
	return e.loaded || e.acked != absent || slices.ContainsFunc(e.maybe, func(s S) bool { return s != absent })
}

// Reading is a read in progress.
type Reading[S comparable] struct {
	ledger  *Ledger[S]
	key     string
	changes int
	writing bool
}

// Read records that a client is about to read a record.
func (l *Ledger[S]) Read(key string) Reading[S] {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Reading[S]{ledger: l, key: key}
	if e := l.entries[key]; e != nil {
		r.changes, r.writing = e.changes, e.writing
	}
	return r
}

// Check returns a Finding if the read's result was impossible; a print of "" means absent. If the
// record was written during the read, any result is possible, and Check returns nil.
func (r Reading[S]) Check(print string, as func(S) string) error {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	e := r.ledger.entries[r.key]
	if e == nil {
		e = &entry[S]{} // unknown record: must be absent
	}
	// Any change of the entry means that a write began or ended during the read.
	if r.writing || e.changes != r.changes || e.judge(print, as) == "" {
		return nil
	}
	return Finding{Stale, r.ledger.Name + " " + r.key, fmt.Sprintf("want %.120q, has %.120q", printOf(e.acked, as), print)}
}
