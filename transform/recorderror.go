package transform

import "strings"

// RecordError reports why one record cannot be transformed. A lens returns it
// for every error that depends on the record's content, except for a malformed document.
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
