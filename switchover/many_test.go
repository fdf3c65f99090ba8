package switchover_test

import (
	"context"
	"fmt"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/upgradestate"
)

// TestWritesDoNotGrowWithKinds: the number of writes of the record, and with it the pause, does not grow
// with the number of kinds.
func TestWritesDoNotGrowWithKinds(t *testing.T) {
	t.Parallel()
	writes := map[int]int64{}
	for _, n := range []int{1, 40} {
		kinds := kindsOf{}
		for i := range n {
			kinds.v1 = append(kinds.v1, record.KindSpec{Name: fmt.Sprintf("old%d", i)})
			kinds.v2 = append(kinds.v2, record.KindSpec{Name: fmt.Sprintf("new%d", i)})
		}
		inBubble(t, kinds, func(ctx context.Context, w *world) {
			w.report(ctx, 0)
			before := w.await(ctx, "readiness", upgradestate.AllReady)
			w.drive(ctx, switchover.Config{})
			after := w.await(ctx, "the flip", open("v2"))
			writes[n] = after.Revision - before.Revision
		})
	}
	if writes[40] > writes[1] {
		t.Errorf("a switch of one kind writes %d times, of 40 kinds %d times", writes[1], writes[40])
	}
}
