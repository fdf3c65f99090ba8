package transform

import (
	"errors"
	"fmt"
	"sync/atomic"

	"dbcontroller.dev/record"
)

const (
	// ReadBytes is what one read of groups may bring, of each side. What is made of it, and
	// the commands that write it, are about as large.
	ReadBytes = 8 << 20
	// GroupBytes is what the records of one group may have, of each side. It is what a backend
	// writes as one (mongostore.MaxGroupBytes); a group that has more is parked.
	GroupBytes = 64 << 20
	// readGroups is how many groups are read together at most: one snapshot read and one
	// transaction of about this size are near the optimum of the database.
	readGroups = 500
)

// ErrLargeGroup: the records of one group have more than GroupBytes.
var ErrLargeGroup = fmt.Errorf("the records of the group have more than %d bytes, which cannot be migrated as one: make them smaller", GroupBytes)

// Sizer remembers how many items fit into ReadBytes, so that memory is bounded by bytes
// whatever the size of records. The zero value is ready, and may be shared.
type Sizer struct {
	less atomic.Int64 // than readGroups, by so much
}

// Each calls do with one run of items after the other. bytes is the bound of its reads
// (View.Bytes). A run that turns out to be too large (record.ErrTooLarge) is done again by
// halves, and the next ones begin with what has fitted. An item alone is done with ReadBytes
// first and then with GroupBytes; that it is too large even so is do's to handle.
func Each[T any](s *Sizer, items []T, do func(run []T, bytes int) error) error {
	for len(items) > 0 {
		n := min(len(items), readGroups-int(s.less.Load()))
		err := do(items[:n:n], ReadBytes)
		if n > 1 && errors.Is(err, record.ErrTooLarge) {
			s.less.Store(int64(readGroups - n/2))
			continue
		}
		if errors.Is(err, record.ErrTooLarge) {
			err = do(items[:1:1], GroupBytes)
		}
		if err != nil {
			return err
		}
		if more := readGroups - s.less.Load(); int64(n) == more {
			s.less.Store(max(0, readGroups-more-max(1, more/8)))
		}
		items = items[n:]
	}
	return nil
}
