package syncer

import (
	"fmt"
	"testing"

	"dbcontroller.dev/transform"
)

// TestNoRingWaitsForGood: each of the refused groups is the first whose ring is followed in some run,
// so that rings which take all steps of a run do not keep the others waiting for good.
func TestNoRingWaitsForGood(t *testing.T) {
	t.Parallel()
	refused := map[transform.GroupID]transform.Failure{}
	for i := range 10 {
		refused[transform.GroupID{Name: fmt.Sprint(i)}] = transform.Failure{}
	}
	first := map[transform.GroupID]bool{}
	for turn := range uint64(len(refused)) {
		first[nextRing(refused, turn)] = true
	}
	if len(first) < len(refused) {
		t.Errorf("only %d of %d groups are ever the first", len(first), len(refused))
	}
}
