package coord

import (
	"errors"
	"fmt"
)

// MaxBytes is the most that the keys and values of one Commit may come to. It is a
// little below what etcd accepts by default, so that every store refuses alike.
const MaxBytes = 1_500_000

// ErrClosed: the watch was closed, or its store was.
var ErrClosed = errors.New("watch is closed")

// CheckCommit refuses a Commit that no store may accept: too many or too large
// operations, an empty key, or one key written twice (which of the two would win
// differs between stores). Implementations call it before anything is sent.
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
		size += len(c.Key)
	}
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if op.Key == "" {
			return errors.New("commit with an empty key in an operation")
		}
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
