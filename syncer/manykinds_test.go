package syncer_test

import (
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/base/raced"
)

// TestManyKindsAreDealtOut: kinds of a single range do not all fall to one shard, and all of
// them are copied.
func TestManyKindsAreDealtOut(t *testing.T) {
	t.Parallel()
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		const kinds, shardCount = 200, 16
		w, _, e := wide(t, kinds, 1, shardCount)
		w.eventually("everything is copied", func() bool { return e.synced() && len(w.ready()) == shardCount })
		most, sum := int64(0), int64(0)
		for _, p := range e.engine.Progress() {
			most, sum = max(most, p.Copied), sum+p.Copied
		}
		if sum != kinds || most > kinds/4 {
			t.Errorf("%d of %d records are copied, one shard has %d of them", sum, kinds, most)
		}
		e.stop(t)
	})
}
