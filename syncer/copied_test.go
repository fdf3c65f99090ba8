package syncer

import (
	"context"
	"errors"
	"testing"
)

// checkpoints are what the shards of a direction have stored.
type checkpoints struct {
	Copies
	stored map[int]Checkpoint
	err    error
}

func (c checkpoints) LoadCheckpoint(_ context.Context, _ DirectionKey, shard int) (Checkpoint, bool, error) {
	got, found := c.stored[shard]
	return got, found, c.err
}

// TestAgreed: everything is compared when each shard has stored that it is, and none has to be read
// again as a whole.
func TestAgreed(t *testing.T) {
	t.Parallel()
	done := Checkpoint{Verified: true}
	for name, tc := range map[string]struct {
		stored map[int]Checkpoint
		want   bool
	}{
		"all":               {map[int]Checkpoint{0: done, 1: done}, true},
		"one has nothing":   {map[int]Checkpoint{0: done}, false},
		"one is compared":   {map[int]Checkpoint{0: done, 1: {}}, false},
		"one is read again": {map[int]Checkpoint{0: done, 1: {Verified: true, Rescan: true}}, false},
	} {
		if got, err := Agreed(t.Context(), checkpoints{stored: tc.stored}, 2, "k"); err != nil || got != tc.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	lost := errors.New("etcd is away")
	if got, err := Agreed(t.Context(), checkpoints{err: lost}, 1, "k"); got || !errors.Is(err, lost) {
		t.Errorf("a checkpoint that cannot be read: %t, %v", got, err)
	}
}
