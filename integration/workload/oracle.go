package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is what is wrong with a record.
type Kind string

// What can be wrong. One place can show both that a record is there twice and something else.
const (
	Lost        Kind = "lost"        // the last acknowledged state is not there, but an earlier one, any other or none
	Resurrected Kind = "resurrected" // it is there after an acknowledged delete
	Refused     Kind = "refused"     // it is as a write that was refused would have left it
	Duplicated  Kind = "duplicated"  // it is there more than once
	Foreign     Kind = "foreign"     // nobody has ever written it
	Stale       Kind = "stale"       // a read showed what was not, or no longer, its state
)

// Finding is one thing that is wrong with one record.
type Finding struct {
	Kind   Kind
	Record string // sort and key
	Detail string
}

func (f Finding) Error() string { return fmt.Sprintf("%s: %s: %s", f.Kind, f.Record, f.Detail) }

// Findings is everything that is wrong in one place, in the order of the records.
type Findings []Finding

// Err returns nil if there are none, otherwise an error that has the first ones in full.
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

// Seen has the records that are in one place, by key.
type Seen map[string]sighting

type sighting struct {
	print  string
	copies int
}

// Add notes a record that was met. One that is met again is there more than once.
func (s Seen) Add(key, print string) { s[key] = sighting{print, s[key].copies + 1} }

// Check compares all that is in a place, which is named for people, with what clients were
// told. as prints a state as the place does; it is not asked about absence.
func (l *Ledger[S]) Check(place string, seen Seen, as func(S) string) Findings {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found Findings
	add := func(kind Kind, key, format string, args ...any) {
		found = append(found, Finding{kind, l.Name + " " + key, fmt.Sprintf(format, args...)})
	}
	for key, s := range seen {
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
	for key, e := range l.entries {
		if _, there := seen[key]; there {
			continue
		}
		if kind := e.judge("", as); kind != "" {
			add(kind, key, "it is not in %s, acknowledged is %.200q", place, printOf(e.acked, as))
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return strings.Compare(a.Record, b.Record) })
	return found
}

// printOf prints a state as a place does.
func printOf[S comparable](s S, as func(S) string) string {
	var absent S
	if s == absent {
		return ""
	}
	return as(s)
}

// judge returns what is wrong with a record that a place shows as print; nothing if it may
// be so.
func (e *entry[S]) judge(print string, as func(S) string) Kind {
	is := func(s S) bool { return printOf(s, as) == print }
	switch {
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

// mayExist reports whether the acknowledged state, or a write of unknown outcome, lets the
// record be there.
func (e *entry[S]) mayExist() bool {
	var absent S
	return e.loaded || e.acked != absent || slices.ContainsFunc(e.maybe, func(s S) bool { return s != absent })
}

// Reading is a read that is under way.
type Reading[S comparable] struct {
	ledger  *Ledger[S]
	key     string
	changes int
	writing bool
}

// Read notes a read that is about to be sent, by whichever client.
func (l *Ledger[S]) Read(key string) Reading[S] {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Reading[S]{ledger: l, key: key}
	if e := l.entries[key]; e != nil {
		r.changes, r.writing = e.changes, e.writing
	}
	return r
}

// Check returns a Finding if what the read was answered cannot be: "" for absence. A record
// that was written meanwhile may have been read before or after, or in the middle of it, so
// that nothing is said of it.
func (r Reading[S]) Check(print string, as func(S) string) error {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	e := r.ledger.entries[r.key]
	if e == nil {
		e = &entry[S]{} // it must be absent
	}
	if r.writing || e.changes != r.changes || e.judge(print, as) == "" {
		return nil
	}
	return Finding{Stale, r.ledger.Name + " " + r.key, fmt.Sprintf("want %.120q, has %.120q", printOf(e.acked, as), print)}
}
