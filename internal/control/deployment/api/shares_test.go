package api

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestShares: a caller that has something never takes the last, and no more is taken than there is.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := shares{most: float64(rapid.IntRange(10, 100).Draw(t, "most"))}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			who := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "caller"))
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				s.fade(rapid.Float64Range(0, 5).Draw(t, "time"))
			case 1:
				if s.by[who] >= 1 {
					s.giveBack(who)
				}
			default:
				before, all := s.by[who], s.all
				if _, ok := s.take(who); ok != (before+1 <= s.most-all) {
					t.Fatalf("%s with %g of %g, of which %g are taken: %t", who, before, s.most, all, ok)
				}
			}
			sum := 0.0
			for _, n := range s.by {
				sum += n
			}
			if s.all > s.most || sum > s.all+0.001 {
				t.Fatalf("%g are taken, by callers %g, of %g", s.all, sum, s.most)
			}
		}
		if free := s.most - s.all; free >= 1 {
			if _, ok := s.take("a newcomer"); !ok {
				t.Fatalf("a newcomer finds no room where %g are free", free)
			}
		}
	})
	// Several greedy callers leave something.
	s := shares{most: 4000}
	for i := range 10 {
		for ok := true; ok; {
			_, ok = s.take(fmt.Sprint(i))
		}
	}
	if _, ok := s.take("a newcomer"); !ok {
		t.Errorf("10 callers have taken %g of %g", s.all, s.most)
	}
	if has := int(s.by["0"]); has != 2000 {
		t.Errorf("the first has %d, want half", has)
	}
}
