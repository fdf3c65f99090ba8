package lens

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
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

// TypeName returns the name of a type in lenses and messages.
func TypeName(t bson.Type) string { return edit.TypeName(t) }
