package app

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// write is one acknowledged write in the view of its client.
type write struct {
	due   time.Time // by the schedule
	acked time.Time
	path  string // path of the write
	on    string // version that answered
}

// tally collects the results of all clients. It is safe for concurrent use.
type tally struct {
	mu          sync.Mutex
	writes      []write
	failed      int
	reads       int
	readsFailed int
	written     map[[2]string]time.Time // latest write by path and version
	told        int                     // writes that latency has covered
	problems    []string
	note        func(string)
}

// mostProblems limits the failures that are printed. The first ones say most.
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

// problem prints a failure. The caller holds t.mu.
func (t *tally) problem(p string) {
	if len(t.problems) < mostProblems {
		t.problems = append(t.problems, p)
		t.note(p)
	}
}

// wroteOn reports whether every given path has written on a version since a time.
func (t *tally) wroteOn(version string, since time.Time, paths []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(paths, func(p string) bool { return !t.written[[2]string{p, version}].After(since) })
}

// progress returns the number of acknowledged and failed writes so far.
func (t *tally) progress() (acked, failed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.writes), t.failed
}

// latency describes the latency of writes acknowledged since the last call.
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

// underWay returns the latencies of the writes that were under way between the start of the switch
// and the first acknowledgement by the new version. Such a write is due before that end and
// acknowledged after that start.
func underWay(writes []write, start time.Time, to string) (felt []time.Duration) {
	var end time.Time
	for _, w := range writes {
		// The pause ends with the first write that the new version acknowledges.
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

// percentile returns a percentile of a sorted list by nearest rank: the least value that at least p
// percent of the values do not exceed. It returns 0 for an empty list.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// Round up, without floating point.
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
