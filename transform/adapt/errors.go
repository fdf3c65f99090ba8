package adapt

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
)

// ErrTransform means that a group cannot be shown, or that written records cannot be transformed to
// the stored version. Its text is for callers of the version shown. The wrapped reason may name
// details of the stored version; Reason returns it for a log.
var ErrTransform = errors.New("records cannot be transformed")

// LossError refuses a write of data that the stored version has no place for.
type LossError struct {
	Kind    string
	Key     record.Key
	Field   string // dotted path; empty: the whole record
	Version string // the stored version
}

func (e *LossError) Error() string {
	what := e.Field
	if what == "" {
		what = "the record"
	}
	return fmt.Sprintf("%s %s: %s would be lost: version %s has no place for it", e.Kind, e.Key, what, e.Version)
}

// shownError reports an error about the record that the caller named. Its cause names stored kinds
// and keys, so the text omits it.
type shownError struct {
	kind, name string
	what       error // one of the errors in known
	cause      error
}

func (e *shownError) Error() string { return fmt.Sprintf("%s %s: %v", e.kind, e.name, e.what) }
func (e *shownError) Unwrap() error { return e.cause }

// known lists the errors that mean the same for the record shown as for the stored records. The
// first match counts.
var known = []error{
	record.ErrFenced, record.ErrUnknown, record.ErrNotFound, record.ErrExists, record.ErrMismatch,
	record.ErrConflict, record.ErrOversize, record.ErrRefused, record.ErrNoKey, record.ErrUnreadable,
	record.ErrUnavailable, context.Canceled, context.DeadlineExceeded, ErrTransform,
}

// about turns an error into one about a record shown, or about the prefix of a list. It keeps
// errors of this package and wraps unknown errors.
func about(kind, name string, err error) error {
	var loss *LossError
	var unsupported *record.UnsupportedError
	var shown *shownError
	// These errors are about the record shown already.
	if err == nil || errors.As(err, &loss) || errors.As(err, &unsupported) || errors.As(err, &shown) {
		return err
	}
	// An error may match several, so the order of known matters.
	for _, what := range known {
		if errors.Is(err, what) {
			return &shownError{kind, name, what, err}
		}
	}
	return fmt.Errorf("%s %s: %w", kind, name, err)
}

// Reason returns the full text of an Adapter's error, for a log. The text includes the stored kinds
// and keys and the transformer's message, which the error's own text omits.
func Reason(err error) string {
	var shown *shownError
	if errors.As(err, &shown) {
		return fmt.Sprintf("%v: %v", err, shown.cause)
	}
	return fmt.Sprint(err)
}
