package lens

import (
	"fmt"
	"strings"
)

// refusal is an operation's reason to refuse a record.
type refusal struct {
	field  path
	reason string
	err    error
}

func (r *refusal) Error() string { return r.field.String() + " " + r.reason }

func (r *refusal) Unwrap() error { return r.err }

// refuse returns a refusal of a field. The format continues the sentence after the field's name.
// The last argument may be an error for errors.Is.
func refuse(field path, format string, args ...any) error {
	r := &refusal{field: field, reason: strings.ReplaceAll(format, "%w", "%v")}
	r.reason = fmt.Sprintf(r.reason, args...)
	if len(args) > 0 {
		r.err, _ = args[len(args)-1].(error)
	}
	return r
}
