package listing

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// Invalid returns an InvalidArgument error about a request field, with a google.rpc.BadRequest
// detail.
func Invalid(field, format string, args ...any) *connect.Error {
	reason := fmt.Sprintf(format, args...)
	err := connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s: %s", field, reason))
	// The detail is optional: the error text already names the field.
	if detail, detailErr := connect.NewErrorDetail(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: reason}},
	}); detailErr == nil {
		err.AddDetail(detail)
	}
	return err
}
