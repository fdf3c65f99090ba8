package app

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord/memcoord"
)

// TestFleetShares: the controllers of a process share the turns of copies, and count rarely if they are
// many.
func TestFleetShares(t *testing.T) {
	for n, every := range map[int]time.Duration{2: time.Second, 20: time.Second, 60: 3 * time.Second, 500: 10 * time.Second} {
		f, err := NewFleet(make([]Deployment, n), memcoord.New(), Options{}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		turns := f.members[0].options.Turns
		for _, m := range f.members {
			if turns == nil || m.options.Turns != turns || m.options.BeatEvery != every {
				t.Fatalf("one of %d has turns %p and a beat each %v, want %p and %v", n, m.options.Turns, m.options.BeatEvery, turns, every)
			}
		}
	}
}
