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
	// ErrStale: the caller expected another revision of the resource. It reads it and decides
	// anew.
	ErrStale = errors.New("it has changed since that revision")
	// ErrStored: what is stored is none of the resource's messages; a person must look.
	ErrStored = fmt.Errorf("%w: stored record is malformed", record.ErrUnreadable)
)

// shown are the errors of a store that clients read without the text around them. The first
// that an error is counts.
var shown = []error{
	record.ErrNotFound, record.ErrExists, record.ErrMismatch, record.ErrConflict, record.ErrOversize,
	record.ErrRefused, record.ErrNoKey, record.ErrUnreadable,
}

// Known is what clients may read of a store's error: one of shown, a reserved field, or a
// refusal, without the text around it, which names kinds and places that no API has.
// Others are returned as they are. Callers add which resource it is about.
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

// CodeError gives an error of a store, or one of this package, its code, and the reason of
// package refusal if it has one. The cause stays inside: vrunner must find record.ErrFenced
// in it.
func CodeError(err error) error {
	var coded *connect.Error
	var loss *adapt.LossError
	var unsupported *record.UnsupportedError
	answer, refused := refusal.In(err)
	switch {
	case err == nil:
		return nil
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
	case errors.Is(err, record.ErrNoKey): // before Unreadable: somebody may add the key
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
	case errors.As(err, &loss):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, adapt.ErrTransform):
		return connect.NewError(connect.CodeDataLoss, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		// A connection that broke, for one: it passes, and nobody knows what it has done.
		return refusal.New(refusal.OutcomeUnknown, err)
	}
}

// Respond is what a handler returns of a message and an error.
func Respond[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, CodeError(err)
	}
	return connect.NewResponse(msg), nil
}

// RequestError is an error of protodoc about what a client gave, by the field.
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
