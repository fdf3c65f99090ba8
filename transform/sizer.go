package transform

import (
	"errors"
	"fmt"
	"sync/atomic"

	"dbcontroller.dev/record"
)

const (
	// ReadBytes is the limit in bytes for one read of groups, on each side. The results and the
	// write commands have about the same size.
	ReadBytes = 8 << 20
	// GroupBytes is the limit in bytes for the records of one group, on each side. A backend writes
	// at most this much as one (mongostore.MaxGroupBytes). Larger groups are parked.
	GroupBytes = 64 << 20
	// readGroups limits the number of groups in one read. A snapshot read and a transaction of
	// about this size are near the database's optimum.
	readGroups = 500
)

// ErrLargeGroup means that the records of one group have more than GroupBytes.
var ErrLargeGroup = fmt.Errorf("the records of the group have more than %d bytes, which cannot be migrated as one: make them smaller", GroupBytes)

// Sizer remembers how many items fit into ReadBytes. It limits memory by bytes, whatever the size
// of records. The zero value is ready, and concurrent use is safe.
type Sizer struct {
	less atomic.Int64 // how many fewer than readGroups
}

// Each calls do with consecutive runs of items, in order, and stops at the first error. bytes is
// the limit for the reads of do (View.Bytes). If do returns record.ErrTooLarge, Each retries with
// half the items. It remembers the size that fitted for the next runs. For a single item it calls
// do with ReadBytes first, and then with GroupBytes. do must handle a single item that is too large
// even for GroupBytes.
func Each[T any](s *Sizer, items []T, do func(run []T, bytes int) error) error {
	for len(items) > 0 {
		n := min(len(items), readGroups-int(s.less.Load()))
		err := do(items[:n:n], ReadBytes)
		if n > 1 && errors.Is(err, record.ErrTooLarge) {
			// Remember the smaller size: neighbouring records are often of similar size.
			s.less.Store(int64(readGroups - n/2))
			continue
		}
		if errors.Is(err, record.ErrTooLarge) {
			// Alone it may use the full limit of a group.
			err = do(items[:1:1], GroupBytes)
		}
		if err != nil {
			return err
		}
		// A full run fitted. Grow again slowly, since one run of large records should not slow down
		// the rest.
		if more := readGroups - s.less.Load(); int64(n) == more {
			s.less.Store(max(0, readGroups-more-max(1, more/8)))
		}
		items = items[n:]
	}
	return nil
}
