package identity_test

import (
	"context"
	"sync/atomic"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// readsCounted counts the reads of marks.
type readsCounted struct {
	record.Marker
	n *atomic.Int64
}

func (r readsCounted) Marks(ctx context.Context) ([]record.Mark, error) {
	r.n.Add(1)
	return r.Marker.Marks(ctx)
}

// TestMarksAhead: marks that were read ahead make the flip read none. If a mark has changed since, the
// flip reads it again, and is refused if its attempt was aborted.
func TestMarksAhead(t *testing.T) {
	t.Parallel()
	for _, aborted := range []bool{false, true} {
		w := newWorld(t, record.FenceView)
		noted := map[string]bool{}
		w.apply(upgradestate.Begin{ID: "u", TargetVersion: "v2", TransformHash: "h"})
		for w.d.Upgrade.Step != upgradestate.StepSealSource {
			w.step(noted)
		}
		var reads atomic.Int64
		k := w.keeper()
		for v, db := range k.Databases {
			k.Databases[v] = readsCounted{db, &reads}
		}
		k.Ahead = new(identity.Ahead)
		w.ok(k.ReadAhead(t.Context(), w.d))
		if reads.Swap(0) != 2 {
			t.Error("not both marks were read ahead")
		}
		before := w.d
		if aborted {
			w.apply(upgradestate.Abort{ID: "u", Reason: "a test"})
			for w.d.Upgrade != nil {
				w.step(noted)
			}
			w.apply(upgradestate.Begin{ID: "next", TargetVersion: "v2", TransformHash: "h"})
		}
		err := k.BeforeFlip(t.Context(), before)
		switch {
		case aborted && err == nil:
			t.Error("a flip was announced after its abort")
		case !aborted && (err != nil || reads.Load() != 0):
			t.Errorf("the flip read %d marks: %v", reads.Load(), err)
		}
		if aborted {
			continue
		}
		// What was read ahead serves once. The second try finds its marks.
		if err := k.BeforeFlip(t.Context(), w.d); err != nil || reads.Load() != 2 {
			t.Errorf("the second try read %d marks: %v", reads.Load(), err)
		}
	}
}
