package switchover_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestWritesDoNotGrowWithKinds: the number of writes of the record, and with it the pause, does not grow
// with the number of kinds, and neither does that of lines in the log.
func TestWritesDoNotGrowWithKinds(t *testing.T) {
	t.Parallel()
	writes, lines := map[int]int64{}, map[int]int{}
	for _, n := range []int{1, 40} {
		kinds := kindsOf{}
		for i := range n {
			kinds.v1 = append(kinds.v1, record.KindSpec{Name: fmt.Sprintf("old%d", i)})
			kinds.v2 = append(kinds.v2, record.KindSpec{Name: fmt.Sprintf("new%d", i)})
		}
		inBubble(t, kinds, func(ctx context.Context, w *world) {
			core, logs := observer.New(zapcore.InfoLevel)
			w.log = zap.New(core)
			w.report(ctx, 0)
			before := w.await(ctx, "readiness", upgradestate.AllReady)
			w.drive(ctx, switchover.Config{})
			after := w.await(ctx, "the flip", open("v2"))
			writes[n] = after.Revision - before.Revision
			lines[n] = logs.Len()
			if told := logs.FilterMessage("confirmed operations").FilterField(zap.Int("count", n)).FilterField(zap.String("reason", "fence")).Len(); told != 1 {
				t.Errorf("%d lines tell of the fences of %d kinds", told, n)
			}
		})
	}
	if lines[40] > lines[1] {
		t.Errorf("a switch of one kind logs %d lines, of 40 kinds %d lines", lines[1], lines[40])
	}
	if writes[40] > writes[1] {
		t.Errorf("a switch of one kind writes %d times, of 40 kinds %d times", writes[1], writes[40])
	}
}

// TestPauseDoesNotGrowWithKinds: while writes are held no kind waits for another, and neither
// database for the other.
func TestPauseDoesNotGrowWithKinds(t *testing.T) {
	t.Parallel()
	slow := faultstore.On(faultstore.Always(faultstore.Fault{Latency: 100 * time.Millisecond}), faultstore.Fence, faultstore.Hindrances)
	took := map[int]time.Duration{}
	for _, n := range []int{1, 20} {
		kinds := kindsOf{fence: record.FenceView, inject: map[string]faultstore.Injector{"v1": slow, "v2": slow}}
		for i := range n {
			kinds.v1 = append(kinds.v1, record.KindSpec{Name: fmt.Sprintf("old%d", i), Fixed: true})
			kinds.v2 = append(kinds.v2, record.KindSpec{Name: fmt.Sprintf("new%d", i), Fixed: true})
		}
		inBubble(t, kinds, func(ctx context.Context, w *world) {
			w.report(ctx, 0)
			w.drive(ctx, switchover.Config{})
			w.await(ctx, "the switch", switching)
			begun := time.Now()
			w.await(ctx, "the flip", func(d upgradestate.Deployment) bool { return d.CurrentVersion == "v2" })
			took[n] = time.Since(begun)
		})
	}
	// The fence, the look at both databases, the seal of the target, and the second look.
	if took[1] != 400*time.Millisecond || took[20] != took[1] {
		t.Errorf("writes of one kind are held for %s, of 20 kinds for %s", took[1], took[20])
	}
}
