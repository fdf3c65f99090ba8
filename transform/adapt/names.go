package adapt

import (
	"cmp"
	"slices"
	"strings"

	"dbcontroller.dev/transform"
)

// chunkMost is how many names are in one piece, so that one more name moves few others.
const chunkMost = 1024

// entry is a candidate that is remembered.
type entry struct {
	candidate
	touched uint64 // when a change of its group was last seen, in the index's own count
	gone    bool   // its group was found empty, and nothing of it has changed since
}

// size is about what an entry takes in memory.
func (e *entry) size() int {
	const header = 112 // the entry, and what two strings take besides their bytes
	return header + len(e.low) + len(e.id.Name)
}

func compareCandidates(a, b candidate) int {
	return cmp.Or(strings.Compare(a.low, b.low), cmp.Compare(a.id.Spec, b.id.Spec), strings.Compare(a.id.Name, b.id.Name))
}

// names are entries in their order, in pieces that are never empty.
type names struct{ chunks [][]entry }

// sortedNames takes entries in any order, each once or more often.
func sortedNames(of []entry) (n names) {
	slices.SortFunc(of, func(a, b entry) int { return compareCandidates(a.candidate, b.candidate) })
	of = slices.CompactFunc(of, func(a, b entry) bool { return a.candidate == b.candidate })
	for piece := range slices.Chunk(of, chunkMost/2) {
		n.chunks = append(n.chunks, slices.Clone(piece))
	}
	return n
}

// place is where a candidate is or would be.
func (n *names) place(c candidate) (chunk, at int, found bool) {
	chunk, _ = slices.BinarySearchFunc(n.chunks, c, func(of []entry, c candidate) int {
		return compareCandidates(of[len(of)-1].candidate, c)
	})
	if chunk == len(n.chunks) {
		return chunk, 0, false
	}
	at, found = slices.BinarySearchFunc(n.chunks[chunk], c, func(e entry, c candidate) int { return compareCandidates(e.candidate, c) })
	return chunk, at, found
}

// find returns the entry of a candidate, nil if there is none.
func (n *names) find(c candidate) *entry {
	chunk, at, found := n.place(c)
	if !found {
		return nil
	}
	return &n.chunks[chunk][at]
}

// insert adds an entry that is not there.
func (n *names) insert(e entry) {
	chunk, at, _ := n.place(e.candidate)
	if chunk == len(n.chunks) {
		if chunk--; chunk < 0 {
			n.chunks = [][]entry{{e}}
			return
		}
		at = len(n.chunks[chunk])
	}
	of := slices.Insert(n.chunks[chunk], at, e)
	n.chunks[chunk] = of
	if half := len(of) / 2; len(of) > chunkMost {
		n.chunks = slices.Insert(n.chunks, chunk+1, slices.Clone(of[half:]))
		n.chunks[chunk] = slices.Delete(of, half, len(of))
	}
}

// from yields what is there from a name on, in order.
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

// page returns the first candidates of a page, at least so many if there are: those that begin at
// from or, at the beginning, those that reach behind the page's place.
func (n *names) page(p page, from string, least int) *window {
	w := &window{}
	start := from
	if from == "" {
		start = max(p.prefix, p.after)
		// What is shown of these begins before the place, and may go on behind it.
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
			return w // behind all that begin so
		case from == "" && !e.open && e.low == p.after && p.after != "":
			continue
		case len(w.of) >= least && e.low != w.of[len(w.of)-1].low:
			w.bound, w.bounded = e.low, true
			return w
		}
		w.of = append(w.of, e.candidate)
	}
	return w
}
