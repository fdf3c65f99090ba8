package integration_test

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/integration/workload"
)

// ledger is what clients were told of the records of one path, and how long that took. A
// state is a short text; absence is the empty one.
type ledger struct {
	*workload.Ledger[string]

	mu      sync.Mutex
	acks    []ack
	reads   int
	failed  []error  // calls that should not have failed, reads that were wrong
	excused bool     // calls may fail: what becomes of a write is then unknown
	unknown []string // calls that failed and may
}

// ack is an acknowledged write.
type ack struct {
	sent, acked time.Time
	version     string // that it went to
}

func newLedger(name string) *ledger { return &ledger{Ledger: workload.New[string](name)} }

// shown is how every place shows a state.
func shown(state string) string { return state }

// ack notes that the write begun last was acknowledged.
func (l *ledger) ack(key string, a ack) {
	l.Ack(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
}

// fail notes a call that failed; what it wrote remains possible.
func (l *ledger) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.excused {
		l.unknown = append(l.unknown, fmt.Sprintf(format, args...))
		return
	}
	l.failed = append(l.failed, fmt.Errorf(format, args...))
}

// excuse says whether calls may fail from now on.
func (l *ledger) excuse(may bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excused = may
}

// read checks what a client was shown.
func (l *ledger) read(r workload.Reading[string], state string) {
	err := r.Check(state, shown)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if err != nil {
		l.failed = append(l.failed, err)
	}
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

// check compares what one place holds with what clients were told.
func (l *ledger) check(place string, seen workload.Seen) error {
	return l.Check(place, seen, shown).Err()
}

// failures are the calls and reads that should not have ended as they did.
func (l *ledger) failures() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d calls of a %s failed: %w", len(l.failed), l.Name, errors.Join(l.failed[:min(5, len(l.failed))]...))
}
