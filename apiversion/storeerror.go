package apiversion

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/transform/adapt"
)

var (
	// ErrStale means that the resource no longer has the revision that the caller expects. The
	// caller should read it again and decide anew.
	ErrStale = errors.New("it has changed since that revision")
	// ErrStored means that a stored record is not a valid message of the resource. An operator must
	// look at it.
	ErrStored = fmt.Errorf("%w: stored record is malformed", record.ErrUnreadable)
)

// shown lists store errors that clients see without the text around them. The first match wins.
var shown = []error{
	record.ErrNotFound, record.ErrExists, record.ErrMismatch, record.ErrConflict, record.ErrOversize,
	record.ErrRefused, record.ErrNoKey, record.ErrUnreadable,
}

// Known returns the part of a store error that clients may read: a sentinel of package record such
// as ErrNotFound, a reserved field, or a refusal. It drops the text around that part, which names
// kinds and collections that the API does not have. It returns all other errors unchanged. Callers
// add the name of the resource.
func Known(err error) error {
	if refused := refusal.Plain(err); refused != nil {
		return refused
	}
	var reserved record.ReservedError
	if errors.As(err, &reserved) {
		return reserved
	}
	for _, known := range shown {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}

// CodeError adds the Connect code to an error of a store or of this package, and a reason of
// package refusal if there is one. It returns nil for nil, and errors with a code unchanged. The
// result wraps the cause, because vrunner looks for record.ErrFenced in it.
func CodeError(err error) error {
	var coded *connect.Error
	var loss *adapt.LossError
	var unsupported *record.UnsupportedError
	answer, refused := refusal.In(err)
	switch {
	case err == nil:
		return nil
	// An error that already has a code keeps it: a deeper layer knew more.
	case errors.As(err, &coded):
		return err
	case refused:
		return answer
	case errors.Is(err, record.ErrFenced):
		return refusal.New(refusal.Fenced, err)
	case errors.Is(err, record.ErrUnknown):
		return refusal.New(refusal.OutcomeUnknown, err)
	case errors.Is(err, record.ErrUnavailable):
		return refusal.New(refusal.DatabaseUnavailable, err)
	case errors.Is(err, record.ErrOversize):
		return refusal.New(refusal.TooLarge, err)
	case errors.Is(err, record.ErrConflict):
		return refusal.New(refusal.NotUnique, err)
	case errors.Is(err, record.ErrRefused):
		return refusal.New(refusal.Refused, err)
	case errors.Is(err, record.ErrNoKey): // before ErrUnreadable: an operator can add the key
		return refusal.New(refusal.KeyMissing, err)
	case errors.Is(err, record.ErrUnreadable):
		return refusal.New(refusal.Unreadable, err)
	case errors.As(err, &unsupported):
		return connect.NewError(connect.CodeUnimplemented, err)
	case errors.Is(err, record.ErrNotFound):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, record.ErrExists):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, record.ErrMismatch), errors.Is(err, ErrStale):
		return connect.NewError(connect.CodeAborted, err)
	// The client wrote a value that the stored version cannot hold.
	case errors.As(err, &loss):
		return connect.NewError(connect.CodeInvalidArgument, err)
	// The stored record cannot be shown in this version.
	case errors.Is(err, adapt.ErrTransform):
		return connect.NewError(connect.CodeDataLoss, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		// For example a broken connection. It may pass, and the write may or may not have happened.
		return refusal.New(refusal.OutcomeUnknown, err)
	}
}

// Respond returns a handler's result: msg as a response, or err with its code (CodeError).
func Respond[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, CodeError(err)
	}
	return connect.NewResponse(msg), nil
}

// RequestError turns a protodoc error about a client's message into InvalidArgument, with the
// field. It returns other errors unchanged.
func RequestError(err error) error {
	var field *protodoc.Error
	switch {
	case !errors.As(err, &field):
		return err
	case field.Path == "":
		return connect.NewError(connect.CodeInvalidArgument, err)
	default:
		return listing.Invalid(field.Path, "%s", field.Reason)
	}
}
