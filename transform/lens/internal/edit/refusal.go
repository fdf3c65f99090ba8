package edit

import (
	"fmt"
	"strings"
)

// Refusal is an operation's reason to refuse a record.
type Refusal struct {
	Field  Path
	Reason string
	Err    error
}

func (r *Refusal) Error() string { return r.Field.String() + " " + r.Reason }

func (r *Refusal) Unwrap() error { return r.Err }

// Refuse returns a refusal of a field. The format continues the sentence after the field's name.
// The last argument may be an error for errors.Is.
func Refuse(field Path, format string, args ...any) error {
	r := &Refusal{Field: field, Reason: strings.ReplaceAll(format, "%w", "%v")}
	r.Reason = fmt.Sprintf(r.Reason, args...)
	if len(args) > 0 {
		r.Err, _ = args[len(args)-1].(error)
	}
	return r
}
