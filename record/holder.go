package record

import (
	"errors"
	"fmt"
)

// HeldError is an ErrConflict that names the record with the conflicting unique value. The caller
// may have to write both records together, because the holder may be giving up the value.
type HeldError struct {
	Kind   string
	Holder Key
	Err    error // wraps ErrConflict
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%v: %s %s has the same value", e.Err, e.Kind, e.Holder)
}

func (e *HeldError) Unwrap() error { return e.Err }

// HolderOf returns the record that holds the unique value named in err. ok is false for other
// errors, and if the holder is unknown.
func HolderOf(err error) (kind string, key Key, ok bool) {
	var held *HeldError
	if !errors.As(err, &held) {
		return "", "", false
	}
	return held.Kind, held.Holder, true
}
