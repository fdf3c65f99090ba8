package secrets

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"dbcontroller/apiversion/listing"
	"dbcontroller/apiversion/protodoc"
	"dbcontroller/record"
	"dbcontroller/transform/adapt"
)

var (
	// errStale: the caller expected another revision. It reads the secret and decides anew.
	errStale = errors.New("the secret has changed since that revision")
	// errStored: what is stored cannot be read; a person must look.
	errStored = errors.New("stored record is malformed")
)

// about is what clients are told of a store's error about a secret. Its own text names
// kinds and places that no API has.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	for _, told := range []error{record.ErrNotFound, record.ErrExists, record.ErrMismatch} {
		if errors.Is(err, told) {
			err = told
		}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// rpcError gives an error its code. The cause stays inside: vrunner must find
// record.ErrFenced.
func rpcError(err error) error {
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
	case errors.Is(err, record.ErrMismatch), errors.Is(err, errStale):
		return connect.NewError(connect.CodeAborted, err)
	case errors.As(err, &loss):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, errStored), errors.Is(err, adapt.ErrTransform):
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
	if errors.As(err, &field) {
		return listing.Invalid(field.Path, "%s", field.Reason)
	}
	return err
}
