package adapt

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

// ErrTransform: a group cannot be shown, or what was written cannot be brought into the
// stored version. Its text is for the callers of the version shown; the reason, which may
// name what only the stored version has, is inside: Reason returns it for a log.
var ErrTransform = errors.New("records cannot be transformed")

// LossError refuses a write that the stored version has no place for.
type LossError struct {
	Kind    string
	Key     record.Key
	Field   string // the dotted path; empty: the whole record
	Version string // that has no place for it
}

func (e *LossError) Error() string {
	what := e.Field
	if what == "" {
		what = "the record"
	}
	return fmt.Sprintf("%s %s: %s would be lost: version %s has no place for it", e.Kind, e.Key, what, e.Version)
}

// shownError tells the caller of the version shown what happened to the record that it
// named. The cause, which names stored kinds and keys, stays inside.
type shownError struct {
	kind, name string
	what       error // one of those in known
	cause      error
}

func (e *shownError) Error() string { return fmt.Sprintf("%s %s: %v", e.kind, e.name, e.what) }
func (e *shownError) Unwrap() error { return e.cause }

// known are the errors whose meaning for the record shown is that for the stored ones. The
// first that an error is counts.
var known = []error{
	record.ErrFenced, record.ErrUnknown, record.ErrNotFound, record.ErrExists, record.ErrMismatch,
	record.ErrConflict, record.ErrOversize, record.ErrRefused, record.ErrNoKey, record.ErrUnreadable,
	record.ErrUnavailable, context.Canceled, context.DeadlineExceeded, ErrTransform,
}

// about makes an error one about a record shown, or about the beginning of names of a list.
// What this package says itself, and what nobody has foreseen, stays as it is.
func about(kind, name string, err error) error {
	var loss *LossError
	var unsupported *record.UnsupportedError
	var shown *shownError
	if err == nil || errors.As(err, &loss) || errors.As(err, &unsupported) || errors.As(err, &shown) {
		return err
	}
	for _, what := range known {
		if errors.Is(err, what) {
			return &shownError{kind, name, what, err}
		}
	}
	return fmt.Errorf("%s %s: %w", kind, name, err)
}

// Reason is the whole text of an error of an Adapter, for a log: with the stored kinds and
// keys, and what a transformer has said, which the error itself leaves out.
func Reason(err error) string {
	var shown *shownError
	if errors.As(err, &shown) {
		return fmt.Sprintf("%v: %v", err, shown.cause)
	}
	return fmt.Sprint(err)
}
