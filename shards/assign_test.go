package shards

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ring := rapid.IntRange(1, 128).Draw(t, "ring")
		members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.-]{1,12}`), 1, 20, rapid.ID).Draw(t, "members")
		got := assign(members, ring)
		load := map[string]int{}
		for s := range ring {
			m, ok := got[s]
			if !ok || !slices.Contains(members, m) {
				t.Fatalf("shard %d belongs to %q", s, m)
			}
			load[m]++
		}
		for _, m := range members {
			if n := load[m]; n != ring/len(members) && n != (ring+len(members)-1)/len(members) {
				t.Fatalf("%s has %d of %d shards among %d members", m, n, ring, len(members))
			}
		}
		if again := assign(rapid.Permutation(members).Draw(t, "order"), ring); !maps.Equal(got, again) {
			t.Fatalf("the order of members matters: %v, %v", got, again)
		}
	})
	if got := assign(nil, 16); len(got) != 0 {
		t.Fatalf("without members: %v", got)
	}
}

// Few shards move: a newcomer's share has to; as much again is the price of the balance.
func TestAssignMovesLittle(t *testing.T) {
	const ring = 256
	for n := 1; n < 12; n++ {
		var members []string
		for i := range n + 1 {
			members = append(members, fmt.Sprintf("controller-%d", i))
		}
		before, after := assign(members[:n], ring), assign(members, ring)
		moved := 0
		for s := range ring {
			if before[s] != after[s] {
				moved++
			}
		}
		if must := (ring + n) / (n + 1); moved > 2*must {
			t.Errorf("%d of %d shards moved for the %dth member, its share is %d", moved, ring, n+1, must)
		}
	}
}
