package protodoc

import (
	"errors"
	"fmt"
)

// Error reports the field that cannot be converted, and the reason. It contains no values, so it is
// safe to log.
type Error struct {
	Path   string // dotted proto names; "" is the message itself
	Reason string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

// failf returns an Error without a path. Callers add it with at.
func failf(format string, args ...any) error { return &Error{Reason: fmt.Sprintf(format, args...)} }

// at prefixes the path in an error with the name of a field or entry.
func at(name string, err error) error {
	e := new(Error)
	if !errors.As(err, &e) {
		return &Error{Path: name, Reason: err.Error()}
	}
	if e.Path == "" {
		return &Error{Path: name, Reason: e.Reason}
	}
	return &Error{Path: name + "." + e.Path, Reason: e.Reason}
}

// maxDepth is the nesting limit of MongoDB.
const maxDepth = 100

var errDepth = failf("more than %d levels", maxDepth)
