package upgradestate

import (
	"errors"
	"fmt"
)

// ErrOutdated is returned by Apply for an event about another upgrade, phase, attempt or step than
// the record's. The record is fine: read it again and decide again.
var ErrOutdated = errors.New("event is outdated")

// RefusedError is returned by Apply for an event that the record does not allow. Reason is for an
// operator: the problem with its values, and how to resolve it.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refused(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

func outdated(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrOutdated)...)
}
