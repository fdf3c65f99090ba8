package sampletest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// DrawFilter draws a list filter: atoms joined by operators, nested at most depth levels deep.
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

// AcrossTheFlip reads a list in pages of one item while the active version changes forward and
// back, between any two pages. The names must equal want, the names without a flip. page reads the
// page after token from one of the three stacks.
func AcrossTheFlip[A any](t *testing.T, before, after, back A, want []string, page func(a A, token string) (names []string, next string, err error)) {
	t.Helper()
	for flipAt := range 5 {
		var got []string
		token := ""
		for n := 0; n == 0 || token != ""; n++ {
			// Each page comes from the stack that is active at that moment.
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
