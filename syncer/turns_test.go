package syncer

import (
	"runtime"
	"testing"
	"weak"

	"dbcontroller.dev/transform"
)

// TestTurnsAreForgotten: a flight that has had its turn does not keep the earlier flights in memory. In a
// busy stream each one waits for the one before, back to the first.
func TestTurnsAreForgotten(t *testing.T) {
	t.Parallel()
	busy := transform.GroupID{Name: "busy"}
	later := &flight{}
	later.free, later.shared = newPart(later), newPart(later)
	first := func() weak.Pointer[flight] {
		f := &flight{landed: make(chan struct{})}
		f.free, f.shared = newPart(f), newPart(f)
		f.free.add(busy)
		later.assign(busy, false, []*flight{f})
		if len(later.turns) != 1 {
			t.Fatalf("%d turns, want that of the earlier flight", len(later.turns))
		}
		close(f.free.done)
		if err := later.takeTurns(t.Context()); err != nil {
			t.Fatal(err)
		}
		return weak.Make(f)
	}()
	runtime.GC()
	if first.Value() != nil {
		t.Error("the earlier flight is still in memory")
	}
	runtime.KeepAlive(later)
}
