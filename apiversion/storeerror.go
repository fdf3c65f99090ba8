package apiversion

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/adapt"
)

var (
	// ErrStale: the caller expected another revision of the resource. It reads it and decides
	// anew.
	ErrStale = errors.New("it has changed since that revision")
	// ErrStored: what is stored cannot be read; a person must look.
	ErrStored = errors.New("stored record is malformed")
)

// Known is what clients may read of a store's error: record.ErrNotFound, ErrExists or
// ErrMismatch without the text around it, which names kinds and places that no API has.
// Others are returned as they are. Callers add which resource it is about.
func Known(err error) error {
	for _, known := range []error{record.ErrNotFound, record.ErrExists, record.ErrMismatch} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}

// CodeError gives an error of a store, or one of this package, its code. The cause stays
// inside: vrunner must find record.ErrFenced in it.
func CodeError(err error) error {
	var coded *connect.Error
	var loss *adapt.LossError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.Is(err, record.ErrNotFound):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, record.ErrExists):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, record.ErrMismatch), errors.Is(err, ErrStale):
		return connect.NewError(connect.CodeAborted, err)
	case errors.As(err, &loss):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, ErrStored), errors.Is(err, adapt.ErrTransform):
		return connect.NewError(connect.CodeDataLoss, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		// Fenced, unknown outcome, no database: all of it passes.
		return connect.NewError(connect.CodeUnavailable, err)
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
