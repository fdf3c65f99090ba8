package operation

import (
	"errors"
	"fmt"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/edit"
)

// RecordError returns err as a *transform.RecordError of the operation. An error of an item within
// an each already has an operation and a field. RecordError then puts the operation o and the path
// of the list in front.
func RecordError(o Op, err error) error {
	out := &transform.RecordError{Operation: o.String(), Err: err}
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

// complementError is RecordError for an error in the target's record.
func complementError(err error) error {
	// A malformed document has no field to name.
	if errors.Is(err, edit.ErrMalformed) {
		return fmt.Errorf("complement: %w", err)
	}
	out := &transform.RecordError{Operation: "complement", Reason: err.Error(), Err: err}
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
	err  *transform.RecordError
}

func (e *itemError) Error() string { return e.err.Error() }
