package lens

import (
	"errors"
	"fmt"
	"strings"
)

// ParseError reports where a lens is wrong and what would be right.
type ParseError struct {
	File         string
	Line, Column int // from 1; 0 where the text ends too early
	Message      string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// RecordError reports why one record cannot be taken to the other side. Up and Down
// return it for everything that is due to what the record holds, but for documents that
// are not well-formed.
type RecordError struct {
	// Operation is as the lens has it, e.g. "convert size from int to long"; "complement"
	// where it is what the target holds that does not fit.
	Operation string
	Field     string // dotted; an item of a list has its number, from 0
	Reason    string // goes on where Field ends: "is of type string"
	Err       error  // what Reason was made of; may be nil
}

func (e *RecordError) Error() string {
	return e.Operation + ": " + strings.TrimSpace(e.Field+" "+e.Reason)
}

func (e *RecordError) Unwrap() error { return e.Err }

// refusal is the reason why an operation refuses a record.
type refusal struct {
	field  path
	reason string
	err    error
}

func (r *refusal) Error() string { return r.field.String() + " " + r.reason }
func (r *refusal) Unwrap() error { return r.err }

// refuse returns what is wrong with a field, from the verb on. The last argument may be an
// error that the caller looks for.
func refuse(field path, format string, args ...any) error {
	r := &refusal{field: field, reason: strings.ReplaceAll(format, "%w", "%v")}
	r.reason = fmt.Sprintf(r.reason, args...)
	if len(args) > 0 {
		r.err, _ = args[len(args)-1].(error)
	}
	return r
}

// recordError adds which operation an error comes from. One from within an item knows
// its operation and field already.
func recordError(o op, err error) error {
	out := &RecordError{Operation: o.String(), Err: err}
	var within *itemError
	var r *refusal
	switch {
	case errors.As(err, &within):
		inner := within.err
		out.Operation += ": " + inner.Operation
		out.Field = within.list.String() + "." + within.item
		if inner.Field != itemPart {
			out.Field += "." + inner.Field
		}
		out.Reason, out.Err = inner.Reason, inner.Err
	case errors.As(err, &r):
		out.Field, out.Reason, out.Err = r.field.String(), r.reason, r.err
	default:
		out.Reason = err.Error()
	}
	return out
}

// complementError is recordError for what the target holds.
func complementError(err error) error {
	if errors.Is(err, errMalformed) {
		return fmt.Errorf("complement: %w", err)
	}
	out := &RecordError{Operation: "complement", Reason: err.Error(), Err: err}
	var r *refusal
	if errors.As(err, &r) {
		out.Field, out.Reason, out.Err = r.field.String(), r.reason, r.err
	}
	return out
}

// itemError is an error of one item of list.
type itemError struct {
	list path
	item string
	err  *RecordError
}

func (e *itemError) Error() string { return e.err.Error() }
