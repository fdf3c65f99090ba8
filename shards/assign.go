package shards

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// assign spreads the ring over members by rendezvous hashing with a bounded load: pairs
// of shard and member are taken in the order of their weights, unless the shard has a
// member or the member its full load. Every member ends with floor(ring/members) or one
// more. The result depends on the set of members only, so that all pools agree, and few
// shards move when a member comes or goes, because the weights of the others' pairs
// stay as they are.
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
