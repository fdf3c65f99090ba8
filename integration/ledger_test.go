package integration_test

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// ledger is what clients were told, by key. A state is a short text; absence is the
// empty one. One client writes a key.
type ledger struct {
	name string

	mu      sync.Mutex
	entries map[string]*entry
	acks    []ack
	reads   int
	failed  []string // calls that should not have failed, reads that were wrong
	excused bool     // calls may fail: what becomes of a write is then unknown
	unknown []string // calls that failed and may
}

// entry is what a key may hold: acked, or one of maybe, whose writes are under way or of
// unknown outcome.
type entry struct {
	acked string
	maybe []string
}

// ack is an acknowledged write.
type ack struct {
	sent, acked time.Time
	version     string // that it went to
}

func newLedger(name string) *ledger { return &ledger{name: name, entries: map[string]*entry{}} }

// put notes what is there before any client writes.
func (l *ledger) put(key, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[key] = &entry{acked: state}
}

// begin notes a write that is about to be sent.
func (l *ledger) begin(key, next string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[key] == nil {
		l.entries[key] = &entry{}
	}
	l.entries[key].maybe = append(l.entries[key].maybe, next)
}

// ack notes that a write was acknowledged: nothing else is possible any more.
func (l *ledger) ack(key, state string, a ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.entries[key] = entry{acked: state}
	l.acks = append(l.acks, a)
}

// fail notes a call that failed, and what it wrote as possible from now on.
func (l *ledger) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.excused {
		l.unknown = append(l.unknown, fmt.Sprintf(format, args...))
		return
	}
	l.failed = append(l.failed, fmt.Sprintf(format, args...))
}

// read checks what the owner of a key was shown.
func (l *ledger) read(key, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if e := l.entries[key]; e != nil && !e.allows(state) {
		l.failed = append(l.failed, fmt.Sprintf("read %s: it holds %q, acknowledged is %q", key, state, e.acked))
	}
}

func (e *entry) allows(state string) bool {
	return e.acked == state || slices.Contains(e.maybe, state)
}

// count is the number of acknowledged writes on a version.
func (l *ledger) count(version string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.acks {
		if a.version == version {
			n++
		}
	}
	return n
}

// pause is the longest that a client waited for a write that was under way between the
// start of a switch and the first write on the new version, of n such writes.
func (l *ledger) pause(start time.Time) (longest time.Duration, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Time
	for _, a := range l.acks {
		if a.version == "v2" && (first.IsZero() || a.acked.Before(first)) {
			first = a.acked
		}
	}
	for _, a := range l.acks {
		if a.acked.After(start) && !a.sent.After(first) {
			longest = max(longest, a.acked.Sub(a.sent))
			n++
		}
	}
	return longest, n
}

// findings are the keys that are not as clients were told.
type findings struct{ lost, duplicated, resurrected, failed []string }

// check compares what one place holds with what clients were told.
func (l *ledger) check(place string, seen map[string]string) findings {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := findings{failed: slices.Clone(l.failed)}
	for key, state := range seen {
		e := l.entries[key]
		what := fmt.Sprintf("%s %s: %s holds %q", l.name, key, place, state)
		switch {
		case e == nil:
			f.duplicated = append(f.duplicated, what+", which nobody wrote")
		case e.allows(state):
		case e.acked == "":
			f.resurrected = append(f.resurrected, what+", which was deleted")
		default:
			f.lost = append(f.lost, fmt.Sprintf("%s, acknowledged is %q", what, e.acked))
		}
	}
	for key, e := range l.entries {
		if _, there := seen[key]; !there && !e.allows("") {
			f.lost = append(f.lost, fmt.Sprintf("%s %s: it is not in %s, acknowledged is %q", l.name, key, place, e.acked))
		}
	}
	return f
}
