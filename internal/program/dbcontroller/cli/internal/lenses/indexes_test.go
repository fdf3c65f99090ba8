package lenses

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLeftTrials: a command sweeps what one that was killed has left, and nothing of one that runs
// at the same time.
func TestLeftTrials(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old, running := newTrial(now.Add(-25*time.Hour)), newTrial(now.Add(-time.Hour))
	names := []string{old + "a", old + "b", running + "a", newTrial(now) + "a", "dbc_lint_abcdefghij.users", "dbc_lint_users", "users", "other.1_a"}
	want := []string{old, "dbc_lint_abcdefghij."}
	slices.Sort(want)
	if got := leftTrials(names, now); !slices.Equal(got, want) {
		t.Errorf("swept %v, want %v", got, want)
	}
	if own := newTrial(now); own == newTrial(now) || !strings.HasPrefix(own, trialPrefix) {
		t.Errorf("own prefix %s", own)
	}
}
