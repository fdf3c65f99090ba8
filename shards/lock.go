package shards

import (
	"fmt"

	"dbcontroller/coord"
)

// Lock is one period of ownership of a shard, or of leadership.
type Lock struct {
	Shard  int    // -1 for a leader's
	Key    string // in the coordination store
	Create int64  // revision at which this owner created the key
}

// Condition holds as long as the lock does. A commit with it fails with
// coord.ErrConflict once the lock was released or lost, also if the same process has
// taken it again since.
func (l Lock) Condition() coord.Condition {
	return coord.Condition{Key: l.Key, Create: true, Revision: l.Create}
}

// shardKey is padded so that listings are in the order of the ring.
func shardKey(prefix string, shard int) string { return fmt.Sprintf("%s%05d", prefix, shard) }
