package syncer

import (
	"github.com/bits-and-blooms/bloom/v3"

	"dbcontroller.dev/transform"
)

// Bounds of the filter: 4 MiB. At changedMost entries, fewer than one in a hundred unchanged groups
// counts as changed.
const (
	changedBits   = 32 << 20
	changedHashes = 4
	changedMost   = 3_000_000
)

// changed remembers groups that changed during the copy, on any controller. Most of them are in the
// target before the copy reaches them. A server that finds an existing document in a batch of
// inserts undoes the batch and inserts one by one. That takes three times as long. A wrong answer
// of the filter costs time only. The zero value remembers nothing. Engine.mu guards it.
type changed struct {
	groups *bloom.BloomFilter // nil while no group has changed
	n      int
}

func (c *changed) add(id transform.GroupID) {
	// A fuller filter would answer yes too often to be of use.
	if c.n++; c.n > changedMost {
		return
	}
	if c.groups == nil {
		c.groups = bloom.New(changedBits, changedHashes)
	}
	c.groups.AddString(id.Name)
}

func (c *changed) has(id transform.GroupID) bool {
	return c.groups != nil && c.groups.TestString(id.Name)
}

// copying reports whether an owned shard still copies. e.mu is held.
func (e *Engine) copying() bool {
	for _, s := range e.shards {
		if len(s.todo) > 0 {
			return true
		}
	}
	return false
}

// unchanged splits the groups of a page into probably absent ones, with the places of their records
// in the page, and probably present ones.
func (e *Engine) unchanged(ids []transform.GroupID, at []int) (fresh []transform.GroupID, freshAt []int, there []transform.GroupID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed.groups == nil {
		return ids, at, nil
	}
	// Reuses both slices: the caller does not need the old ones.
	fresh, freshAt = ids[:0], at[:0]
	for i, id := range ids {
		if e.changed.has(id) {
			there = append(there, id)
		} else {
			fresh, freshAt = append(fresh, id), append(freshAt, at[i])
		}
	}
	return fresh, freshAt, there
}
