package bbs

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"dbcontroller/apiversion/listing"
	"dbcontroller/apiversion/protodoc"
	"dbcontroller/record"
)

var (
	// errStale: the caller expected another modification tag. It reads the process and
	// decides anew.
	errStale = errors.New("the process has changed since that modification tag")
	// errStored: what is stored cannot be read; a person must look.
	errStored = errors.New("stored record is malformed")
)

// known is what clients are told of a store's error. Its text names kinds and places that
// no API has; callers say which record it is about.
func known(err error) error {
	for _, told := range []error{record.ErrNotFound, record.ErrExists, record.ErrMismatch} {
		if errors.Is(err, told) {
			return told
		}
	}
	return err
}

// rpcError gives an error its code. The cause stays inside: vrunner must find
// record.ErrFenced.
func rpcError(err error) error {
	var coded *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.Is(err, record.ErrNotFound):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, record.ErrExists):
		return connect.NewError(connect.CodeAlreadyExists, err)
	case errors.Is(err, record.ErrMismatch), errors.Is(err, errStale):
		return connect.NewError(connect.CodeAborted, err)
	case errors.Is(err, errStored):
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

func respond[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(msg), nil
}

// requestError is an error of protodoc about what a client gave.
func requestError(err error) error {
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
