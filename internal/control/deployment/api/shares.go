package api

// shares divides a limited amount among callers. A caller may take at most as much as it then
// leaves for others. A caller that is alone gets half of the amount; otherwise a caller gets half
// of what the others leave. One greedy caller thus leaves as much as it has, and a dozen are needed
// to use up thousands. Callers are distinguished by their proven identity; all callers without one
// count as one. It is not safe for concurrent use.
type shares struct {
	most float64
	all  float64            // taken in all, at least the sum of by
	by   map[string]float64 // taken by each caller
}

// forgotten is the remainder below which a caller's entry is deleted. It bounds the number of
// entries by the amount.
const forgotten = 0.5

// take takes one unit for a caller. If the caller cannot have more, it returns false and the number
// that the caller has.
func (s *shares) take(who string) (has int, ok bool) {
	if s.by[who]+1 > s.most-s.all {
		return int(s.by[who]), false
	}
	if s.by == nil {
		s.by = map[string]float64{}
	}
	s.by[who]++
	s.all++
	return int(s.by[who]), true
}

// giveBack returns one unit of a caller.
func (s *shares) giveBack(who string) {
	s.all = max(0, s.all-1)
	s.left(who, s.by[who]-1)
}

// fade returns n units of all that is taken, from each caller in proportion.
func (s *shares) fade(n float64) {
	if s.all <= 0 {
		return
	}
	rest := max(0, s.all-n)
	// Each caller gets back its part, so the proportions stay.
	for who, has := range s.by {
		s.left(who, has*rest/s.all)
	}
	s.all = rest
}

func (s *shares) left(who string, n float64) {
	if n < forgotten {
		delete(s.by, who)
		return
	}
	s.by[who] = n
}
