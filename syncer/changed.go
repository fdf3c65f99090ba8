package syncer

import (
	"github.com/bits-and-blooms/bloom/v3"

	"dbcontroller.dev/transform"
)

// Bounds of what is remembered of changes during a copy: 4 MiB, and of a hundred groups that did
// not change less than one that counts as changed.
const (
	changedBits   = 32 << 20
	changedHashes = 4
	changedMost   = 3_000_000
)

// changed remembers the groups that changed while they are copied, by any controller. Most of
// them are in the target before the copy comes to them, and a server that meets one in a batch of
// inserts undoes the batch and does it once more, one by one, which takes three times as long.
// What is not remembered, or remembered wrongly, costs time and nothing else. The zero value
// remembers nothing. Engine.mu guards it.
type changed struct {
	groups *bloom.BloomFilter // nil: nothing changed
	n      int
}

func (c *changed) add(id transform.GroupID) {
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

// copying reports whether a shard of this controller copies. e.mu is held.
func (e *Engine) copying() bool {
	for _, s := range e.shards {
		if len(s.todo) > 0 {
			return true
		}
	}
	return false
}

// unchanged splits the groups of a page, and where their records are in it, from those that are
// likely to be in the target.
func (e *Engine) unchanged(ids []transform.GroupID, at []int) (fresh []transform.GroupID, freshAt []int, there []transform.GroupID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed.groups == nil {
		return ids, at, nil
	}
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
