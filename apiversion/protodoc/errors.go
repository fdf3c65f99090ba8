package protodoc

import (
	"errors"
	"fmt"
)

// Error names the field that could not be converted, and why. It holds no values.
type Error struct {
	Path   string // dotted, in proto names; "" is the message itself
	Reason string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

func failf(format string, args ...any) error { return &Error{Reason: fmt.Sprintf(format, args...)} }

// at puts the name of the field or entry before the path of an error.
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

// maxDepth is the database's own bound on nesting.
const maxDepth = 100

var errDepth = failf("more than %d levels", maxDepth)
