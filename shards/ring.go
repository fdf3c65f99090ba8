package shards

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"dbcontroller/coord"
)

// Of returns the shard of a group on a ring of a size, which must be at least 1: the
// 64-bit xxHash (seed 0) of the group's name, modulo the size. Ready reports,
// checkpoints and plans of running upgrades depend on it; it never changes.
func Of(group string, ring int) int {
	return int(xxhash.Sum64String(group) % uint64(ring))
}

// ErrRing: the store holds another ring size than the one configured. It is the
// operator's to resolve; trying again does not help.
var ErrRing = errors.New("ring size differs")

// freezeRing stores the size of the ring, or compares it with the one that the first
// process stored. Controllers with different sizes would put a group in two shards.
func freezeRing(ctx context.Context, store coord.Store, key string, size int) error {
	_, err := store.Commit(ctx, []coord.Condition{{Key: key}}, []coord.Op{{Key: key, Value: []byte(strconv.Itoa(size))}})
	if err == nil {
		return nil
	}
	if !errors.Is(err, coord.ErrConflict) {
		return fmt.Errorf("freeze ring: %w", err)
	}
	kv, err := store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("load ring: %w", err)
	}
	frozen, err := strconv.Atoi(string(kv.Value))
	if err != nil {
		return fmt.Errorf("%w: %s holds %q, which is no number", ErrRing, key, kv.Value)
	}
	if frozen != size {
		return fmt.Errorf("%w: %d is configured, but %s was frozen at %d by the first controller; configure %d",
			ErrRing, size, key, frozen, frozen)
	}
	return nil
}
