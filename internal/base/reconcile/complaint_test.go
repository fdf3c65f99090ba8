package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"dbcontroller.dev/internal/base/reconcile"
)

// TestComplaint: an outage is a line for each reason, however long it lasts and whatever
// numbers are in its errors, and the next one is told at once.
func TestComplaint(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text func(i int) string
		want int
	}{
		"the same":            {func(int) string { return "away" }, 1},
		"other numbers":       {func(i int) string { return fmt.Sprintf("away since 10:%02d, port %d", i%60, 1000+i) }, 1},
		"two in turn":         {func(i int) string { return []string{"away", "full"}[i%2] }, 2},
		"always another":      {func(i int) string { return strings.Repeat("a", i) }, 10},
		"another, in the end": {func(i int) string { return map[bool]string{false: "away", true: "full"}[i == 599] }, 2},
	} {
		var c reconcile.Complaint
		lines := 0
		for i := range 600 {
			if c.News(errors.New(tc.text(i))) {
				lines++
			}
		}
		if lines != tc.want {
			t.Errorf("%s: %d lines, want %d", name, lines, tc.want)
		}
		c.Over()
		if !c.News(errors.New(tc.text(0))) {
			t.Errorf("%s: the next outage is not told", name)
		}
	}
}
