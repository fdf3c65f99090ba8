package adapt

import (
	"cmp"
	"slices"
	"strings"

	"dbcontroller.dev/transform"
)

// chunkMost limits the names of a chunk, so that an insertion moves few of them.
const chunkMost = 1024

// entry is a candidate in an index.
type entry struct {
	candidate
	touched uint64 // the index's change count at the last change of the group
	gone    bool   // the group was empty when last read, and did not change since
}

// size returns the approximate memory of an entry, in bytes.
func (e *entry) size() int {
	const header = 112 // the entry, and two strings without their bytes
	return header + len(e.low) + len(e.id.Name)
}

func compareCandidates(a, b candidate) int {
	return cmp.Or(strings.Compare(a.low, b.low), cmp.Compare(a.id.Spec, b.id.Spec), strings.Compare(a.id.Name, b.id.Name))
}

// names holds entries in order, in chunks that are never empty.
type names struct{ chunks [][]entry }

// sortedNames sorts entries and removes duplicates.
func sortedNames(of []entry) (n names) {
	slices.SortFunc(of, func(a, b entry) int { return compareCandidates(a.candidate, b.candidate) })
	of = slices.CompactFunc(of, func(a, b entry) bool { return a.candidate == b.candidate })
	// Half full, so that the first insertions do not split chunks.
	for piece := range slices.Chunk(of, chunkMost/2) {
		n.chunks = append(n.chunks, slices.Clone(piece))
	}
	return n
}

// place returns the position of a candidate, or the position to insert it at.
func (n *names) place(c candidate) (chunk, at int, found bool) {
	// Find the first chunk that ends at or after the candidate.
	chunk, _ = slices.BinarySearchFunc(n.chunks, c, func(of []entry, c candidate) int {
		return compareCandidates(of[len(of)-1].candidate, c)
	})
	if chunk == len(n.chunks) {
		return chunk, 0, false
	}
	at, found = slices.BinarySearchFunc(n.chunks[chunk], c, func(e entry, c candidate) int { return compareCandidates(e.candidate, c) })
	return chunk, at, found
}

// find returns the entry of a candidate, or nil.
func (n *names) find(c candidate) *entry {
	chunk, at, found := n.place(c)
	if !found {
		return nil
	}
	return &n.chunks[chunk][at]
}

// insert adds an entry. It must not exist yet.
func (n *names) insert(e entry) {
	chunk, at, _ := n.place(e.candidate)
	if chunk == len(n.chunks) {
		// After all chunks: append to the last one.
		if chunk--; chunk < 0 {
			n.chunks = [][]entry{{e}}
			return
		}
		at = len(n.chunks[chunk])
	}
	of := slices.Insert(n.chunks[chunk], at, e)
	n.chunks[chunk] = of
	if half := len(of) / 2; len(of) > chunkMost {
		// Clone, because the halves must not share memory: both grow.
		n.chunks = slices.Insert(n.chunks, chunk+1, slices.Clone(of[half:]))
		n.chunks[chunk] = slices.Delete(of, half, len(of))
	}
}

// from iterates over the entries from a name on, in order, without the ones that are gone.
func (n *names) from(low string) func(yield func(*entry) bool) {
	return func(yield func(*entry) bool) {
		for chunk, at, _ := n.place(candidate{low: low, id: transform.GroupID{Spec: -1}}); chunk < len(n.chunks); chunk, at = chunk+1, 0 {
			for i := at; i < len(n.chunks[chunk]); i++ {
				if e := &n.chunks[chunk][i]; !e.gone && !yield(e) {
					return
				}
			}
		}
	}
}

// page returns the first candidates of a page. It returns at least as many as the argument least,
// if they exist. With from, they begin at from. For the first window, they reach beyond the page's
// start.
func (n *names) page(p page, from string, least int) *window {
	w := &window{}
	start := from
	if from == "" {
		start = max(p.prefix, p.after)
		// Their names begin before the start, and may continue after it.
		for i := range start {
			for e := range n.from(start[:i]) {
				if e.low != start[:i] {
					break
				}
				if e.open {
					w.of = append(w.of, e.candidate)
				}
			}
		}
	}
	for e := range n.from(start) {
		switch {
		case !strings.HasPrefix(e.low, p.prefix):
			return w // after the last name with the prefix
		case from == "" && !e.open && e.low == p.after && p.after != "":
			continue
		// Several candidates may begin at one name. Keep them in one window.
		case len(w.of) >= least && e.low != w.of[len(w.of)-1].low:
			w.bound, w.bounded = e.low, true
			return w
		}
		w.of = append(w.of, e.candidate)
	}
	return w
}
