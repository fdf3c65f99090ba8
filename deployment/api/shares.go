package api

// shares divides a bounded amount among callers. A caller may take no more than it then leaves to
// others: half of the amount where it is alone, and half of what the others have left where it is not.
// So one caller that takes all it can get leaves as much, and a dozen of them are needed to use
// thousands up. Callers are known by the identity that was proven; those without one are a single
// caller. It is for use by one goroutine at a time.
type shares struct {
	most float64
	all  float64            // taken, at least what all have together
	by   map[string]float64 // taken by each caller that has some
}

// forgotten is what a caller may have left that is not worth an entry. It bounds the entries by
// the amount.
const forgotten = 0.5

// take takes one for a caller, or reports how many it has where it cannot have more.
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

// giveBack gives back one that a caller took.
func (s *shares) giveBack(who string) {
	s.all = max(0, s.all-1)
	s.left(who, s.by[who]-1)
}

// fade gives back n of all that was taken, of each caller its part.
func (s *shares) fade(n float64) {
	if s.all <= 0 {
		return
	}
	rest := max(0, s.all-n)
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
