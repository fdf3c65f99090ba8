package edit

import (
	"fmt"
	"strings"
)

// Refusal is an operation's reason to refuse a record. Reason continues the sentence after the name
// of Field. Err is the cause, or nil.
type Refusal struct {
	Field  Path
	Reason string
	Err    error
}

func (r *Refusal) Error() string { return r.Field.String() + " " + r.Reason }

func (r *Refusal) Unwrap() error { return r.Err }

// Refuse returns a *Refusal of a field. The formatted text is its Reason, and %w means the same as
// %v. If the last argument is an error, it becomes the Err of the Refusal.
func Refuse(field Path, format string, args ...any) error {
	r := &Refusal{Field: field, Reason: strings.ReplaceAll(format, "%w", "%v")}
	r.Reason = fmt.Sprintf(r.Reason, args...)
	if len(args) > 0 {
		r.Err, _ = args[len(args)-1].(error)
	}
	return r
}
