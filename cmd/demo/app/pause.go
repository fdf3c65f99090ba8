package app

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// write is one acknowledged write as its client felt it.
type write struct {
	due   time.Time // by the schedule
	acked time.Time
	path  string // through which it was made
	on    string // version that answered
}

// tally is what clients saw. Its methods may be called concurrently.
type tally struct {
	mu          sync.Mutex
	writes      []write
	failed      int
	reads       int
	readsFailed int
	written     map[[2]string]time.Time // by path and version, when it was written last
	told        int                     // writes that latency has described
	problems    []string
	note        func(string)
}

// mostProblems bounds what is told of failures; the first ones say most.
const mostProblems = 10

func newTally(note func(string)) *tally {
	return &tally{written: map[[2]string]time.Time{}, note: note}
}

func (t *tally) wrote(w write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, w)
	t.written[[2]string{w.path, w.on}] = w.acked
}

func (t *tally) writeFailed(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	t.problem("write failed: " + problem)
}

func (t *tally) read() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
}

func (t *tally) readFailed(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
	t.readsFailed++
	t.problem("read failed: " + problem)
}

// problem tells of a failure when it happens. t.mu is held.
func (t *tally) problem(p string) {
	if len(t.problems) < mostProblems {
		t.problems = append(t.problems, p)
		t.note(p)
	}
}

// wroteOn reports whether every path given has written on a version since a moment.
func (t *tally) wroteOn(version string, since time.Time, paths []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(paths, func(p string) bool { return !t.written[[2]string{p, version}].After(since) })
}

// progress is how many writes were acknowledged, and how many failed, so far.
func (t *tally) progress() (acked, failed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.writes), t.failed
}

// latency describes the writes acknowledged since the last call, for people.
func (t *tally) latency() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var felt []time.Duration
	for _, w := range t.writes[t.told:] {
		felt = append(felt, w.acked.Sub(w.due))
	}
	t.told = len(t.writes)
	slices.Sort(felt)
	return fmt.Sprintf("%d writes, latency p50 %s, p99 %s, max %s", len(felt), round(percentile(felt, 50)),
		round(percentile(felt, 99)), round(percentile(felt, 100)))
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// pause measures the writes that were under way at any moment from the start of the
// switch to the first acknowledgement by the version that it led to: due before its end,
// and acknowledged after its start.
func pause(writes []write, start time.Time, to string) Pause {
	return pauseOf(underWay(writes, start, to))
}

// underWay is what the clients of these writes felt.
func underWay(writes []write, start time.Time, to string) (felt []time.Duration) {
	var end time.Time
	for _, w := range writes {
		if w.on == to && w.acked.After(start) && (end.IsZero() || w.acked.Before(end)) {
			end = w.acked
		}
	}
	if start.IsZero() || end.IsZero() {
		return nil
	}
	for _, w := range writes {
		if !w.due.After(end) && !w.acked.Before(start) {
			felt = append(felt, w.acked.Sub(w.due))
		}
	}
	return felt
}

func pauseOf(felt []time.Duration) Pause {
	slices.Sort(felt)
	return Pause{
		N: len(felt), P50: percentile(felt, 50).Milliseconds(),
		P99: percentile(felt, 99).Milliseconds(), Max: percentile(felt, 100).Milliseconds(),
	}
}

// percentile of a sorted list, by nearest rank: the least value that at least p per cent
// of the values do not exceed. 0 for an empty list.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
