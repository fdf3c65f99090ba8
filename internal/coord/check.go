package coord

import (
	"errors"
	"fmt"
)

// MaxBytes is the maximum size of the keys and values of one Commit in bytes. It is slightly below
// etcd's default limit, so that all stores have the same limit.
const MaxBytes = 1_500_000

// ErrClosed means that the watch or its store was closed.
var ErrClosed = errors.New("watch is closed")

// CheckCommit refuses a Commit that no store may accept: too many or too large operations, an empty
// key, or one key written twice. Stores would differ in which of two writes wins. Implementations
// call it before they send anything.
func CheckCommit(conditions []Condition, ops []Op) error {
	if n := len(conditions) + len(ops); n > MaxOps {
		return fmt.Errorf("commit of %d conditions and operations, at most %d are allowed", n, MaxOps)
	}
	size := 0
	for _, c := range conditions {
		if c.Key == "" {
			return errors.New("commit with an empty key in a condition")
		}
		if c.Revision < 0 {
			return fmt.Errorf("commit with revision %d in the condition on %s", c.Revision, c.Key)
		}
		size += len(c.Key) + len(c.Value)
	}
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if op.Key == "" {
			return errors.New("commit with an empty key in an operation")
		}
		// etcd refuses this, and other stores would let one of the writes win.
		if seen[op.Key] {
			return fmt.Errorf("commit writes %s twice", op.Key)
		}
		seen[op.Key] = true
		size += len(op.Key) + len(op.Value)
	}
	if size > MaxBytes {
		return fmt.Errorf("commit of %d bytes, at most %d are allowed", size, MaxBytes)
	}
	return nil
}
