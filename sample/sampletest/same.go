package sampletest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// DrawFilter draws a filter of a list: some of the atoms, and what joins them, so deep at most.
func DrawFilter(t *rapid.T, atoms []string, depth int) string {
	kind := rapid.IntRange(0, 5).Draw(t, "filter")
	switch {
	case kind == 0 && depth > 0:
		return "!(" + DrawFilter(t, atoms, depth-1) + ")"
	case kind == 1 && depth > 0:
		return "(" + DrawFilter(t, atoms, depth-1) + ") && (" + DrawFilter(t, atoms, depth-1) + ")"
	case kind == 2 && depth > 0:
		return "(" + DrawFilter(t, atoms, depth-1) + ") || (" + DrawFilter(t, atoms, depth-1) + ")"
	default:
		return rapid.SampledFrom(atoms).Draw(t, "atom")
	}
}

// AcrossTheFlip goes through pages of one item while the active version changes, forward and
// back, between any two of them, and wants the names that a list without a flip has. page asks
// one of the three for the page after token.
func AcrossTheFlip[A any](t *testing.T, before, after, back A, want []string, page func(a A, token string) (names []string, next string, err error)) {
	t.Helper()
	for flipAt := range 5 {
		var got []string
		token := ""
		for n := 0; n == 0 || token != ""; n++ {
			a := before
			switch {
			case n > flipAt+1:
				a = back
			case n > flipAt:
				a = after
			}
			names, next, err := page(a, token)
			if err != nil {
				t.Fatal(err)
			}
			got, token = append(got, names...), next
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("with flips after page %d: %v, want %v", flipAt, got, want)
		}
	}
}
