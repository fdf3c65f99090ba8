package lens

import (
	"errors"
	"fmt"
	"strings"

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

// RecordError reports why one record cannot be transformed. Up and Down return it for every error
// that depends on the record's content. The exception is a malformed document.
type RecordError struct {
	// Operation is the operation as the lens writes it, such as "convert size from int to long". It
	// is "complement" if the target's record is the cause.
	Operation string
	Field     string // dotted path; a list item has its number, from 0
	Reason    string // continues the sentence after Field: "is of type string"
	Err       error  // the cause of Reason; may be nil
}

func (e *RecordError) Error() string {
	return e.Operation + ": " + strings.TrimSpace(e.Field+" "+e.Reason)
}

func (e *RecordError) Unwrap() error { return e.Err }

// recordError adds the operation to an error. An error from an item already has its operation and
// field.
func recordError(o op, err error) error {
	out := &RecordError{Operation: o.String(), Err: err}
	var within *itemError
	var r *edit.Refusal
	switch {
	// Put the path of the list before the field of the item.
	case errors.As(err, &within):
		inner := within.err
		out.Operation += ": " + inner.Operation
		out.Field = within.list.String() + "." + within.item
		if inner.Field != edit.ItemPart {
			out.Field += "." + inner.Field
		}
		out.Reason, out.Err = inner.Reason, inner.Err
	case errors.As(err, &r):
		out.Field, out.Reason, out.Err = r.Field.String(), r.Reason, r.Err
	default:
		out.Reason = err.Error()
	}
	return out
}

// complementError is recordError for an error in the target's record.
func complementError(err error) error {
	// A malformed document has no field to name.
	if errors.Is(err, edit.ErrMalformed) {
		return fmt.Errorf("complement: %w", err)
	}
	out := &RecordError{Operation: "complement", Reason: err.Error(), Err: err}
	var r *edit.Refusal
	if errors.As(err, &r) {
		out.Field, out.Reason, out.Err = r.Field.String(), r.Reason, r.Err
	}
	return out
}

// itemError is an error of one item of a list.
type itemError struct {
	list edit.Path
	item string
	err  *RecordError
}

func (e *itemError) Error() string { return e.err.Error() }
