package lens

import (
	"fmt"

	"dbcontroller.dev/transform"
)

// ParseError reports the place of an error in a lens, and how to correct it.
type ParseError struct {
	File         string
	Line, Column int // from 1; 0 if the text ends too early
	Message      string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// RecordError is the error of Up and Down for every reason that depends on the record's content. The
// exception is a malformed document.
type RecordError = transform.RecordError
