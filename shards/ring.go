package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"dbcontroller.dev/internal/coord"
)

// Of returns the shard of a group on a ring of at least one shard: the 64-bit xxHash (seed 0) of
// the group's name, modulo the ring size. It never changes, since ready reports, checkpoints and
// plans of running upgrades depend on it.
func Of(group string, ring int) int {
	return int(xxhash.Sum64String(group) % uint64(ring))
}

// ErrRing means that the store has another ring size than the configuration. An operator must
// resolve it. A retry does not help.
var ErrRing = errors.New("ring size differs")

// freezeRing stores the ring size, or compares it with the stored size of the first process.
// Controllers with different sizes would assign a group to two shards.
func freezeRing(ctx context.Context, store coord.Store, key string, size int) error {
	_, err := store.Commit(ctx, []coord.Condition{{Key: key}}, []coord.Op{{Key: key, Value: []byte(strconv.Itoa(size))}})
	if err == nil {
		return nil
	}
	if !errors.Is(err, coord.ErrConflict) {
		return fmt.Errorf("freeze ring: %w", err)
	}
	// The key exists, since only the first process creates it and none deletes it.
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

// assign divides the ring among members by rendezvous hashing with bounded load. It takes pairs of
// shard and member in the order of their weights. It skips a pair if the shard has a member
// already, or the member its full load. Every member gets floor(ring/members) shards or one more.
// The result depends on the set of members alone, so all pools agree. Few shards move when a member
// joins or leaves, since the weights of the other pairs stay the same.
func assign(members []string, ring int) map[int]string {
	if len(members) == 0 {
		return map[int]string{}
	}
	type pair struct {
		weight uint64
		member string
		shard  int
	}
	pairs := make([]pair, 0, ring*len(members))
	for _, m := range members {
		for s := range ring {
			pairs = append(pairs, pair{weight: xxhash.Sum64String(m + "\x00" + strconv.Itoa(s)), member: m, shard: s})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		// Ties are broken too, or two pools could sort equal weights differently.
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.member, b.member), cmp.Compare(a.shard, b.shard))
	})
	base, extra := ring/len(members), ring%len(members)
	owner := make(map[int]string, ring)
	load := make(map[string]int, len(members))
	for _, p := range pairs {
		if _, taken := owner[p.shard]; taken {
			continue
		}
		switch {
		case load[p.member] < base:
		case load[p.member] == base && extra > 0:
			extra--
		default:
			continue
		}
		owner[p.shard] = p.member
		load[p.member]++
	}
	return owner
}
