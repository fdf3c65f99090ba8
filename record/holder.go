package record

import (
	"errors"
	"fmt"
)

// HeldError is an ErrConflict that names a record whose value the unique index finds in the
// one that it refuses. The refused record may have to be written together with the holder,
// which may be giving the value up.
type HeldError struct {
	Kind   string
	Holder Key
	Err    error // wraps ErrConflict
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%v: %s %s has the same value", e.Err, e.Kind, e.Holder)
}

func (e *HeldError) Unwrap() error { return e.Err }

// HolderOf returns the record that holds the value for which err refuses another one. ok is
// false where err is about something else, or nobody knows the holder.
func HolderOf(err error) (kind string, key Key, ok bool) {
	var held *HeldError
	if !errors.As(err, &held) {
		return "", "", false
	}
	return held.Kind, held.Holder, true
}
