package upgradestate

import (
	"errors"
	"fmt"
)

// ErrOutdated is returned by Apply for an event that speaks of another upgrade, phase,
// attempt or step than the record is in. Nothing is wrong with the record: read it
// again and decide again.
var ErrOutdated = errors.New("event is outdated")

// RefusedError is returned by Apply for an event that the record does not allow. Reason
// is written for an operator: what is wrong, with values, and what to do.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refused(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

func outdated(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrOutdated)...)
}
