package apiversion_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
)

// TestStoreErrorsHaveReasons: what a switch, a fence or a lost answer does to a handler
// reaches its client with a reason, and what is the client's own has none.
func TestStoreErrorsHaveReasons(t *testing.T) {
	t.Parallel()
	absent := refusal.Because(refusal.VersionNotReady, "v2 has no data yet", record.ErrNotFound)
	for _, tc := range []struct {
		err    error
		code   connect.Code
		reason refusal.Reason
	}{
		{record.ErrFenced, connect.CodeUnavailable, refusal.Fenced},
		{record.ErrUnknown, connect.CodeUnavailable, refusal.OutcomeUnknown},
		{errors.Join(record.ErrUnknown, record.ErrUnavailable), connect.CodeUnavailable, refusal.OutcomeUnknown},
		{record.ErrUnavailable, connect.CodeUnavailable, refusal.DatabaseUnavailable},
		{errors.New("connection reset"), connect.CodeUnavailable, refusal.OutcomeUnknown},
		{absent, connect.CodeNotFound, refusal.VersionNotReady},
		{apiversion.Known(fmt.Errorf("v2/kind: %w", absent)), connect.CodeNotFound, refusal.VersionNotReady},
		{record.ErrConflict, connect.CodeFailedPrecondition, refusal.NotUnique},
		{record.ErrOversize, connect.CodeInvalidArgument, refusal.TooLarge},
		{record.ErrReserved, connect.CodeInvalidArgument, refusal.Refused},
		{sealed.ErrReserved, connect.CodeInvalidArgument, refusal.Refused},
		{record.ErrLongKey, connect.CodeInvalidArgument, refusal.Refused},
		{record.Refuse(errors.New("a validator")), connect.CodeInvalidArgument, refusal.Refused},
		{sealed.ErrTampered, connect.CodeDataLoss, refusal.Unreadable},
		{sealed.ErrKey, connect.CodeFailedPrecondition, refusal.KeyMissing},
		{errors.Join(record.ErrUnreadable, record.ErrNoKey), connect.CodeFailedPrecondition, refusal.KeyMissing},
		{errors.Join(record.ErrUnknown, record.ErrRefused), connect.CodeUnavailable, refusal.OutcomeUnknown},
		{&record.UnsupportedError{}, connect.CodeUnimplemented, ""},
		{record.ErrNotFound, connect.CodeNotFound, ""},
		{record.ErrExists, connect.CodeAlreadyExists, ""},
		{record.ErrMismatch, connect.CodeAborted, ""},
		{apiversion.ErrStale, connect.CodeAborted, ""},
		{apiversion.ErrStored, connect.CodeDataLoss, refusal.Unreadable},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded, ""},
	} {
		err := apiversion.CodeError(fmt.Errorf("write: %w", tc.err))
		if reason, _ := refusal.Of(err); connect.CodeOf(err) != tc.code || reason != tc.reason || !errors.Is(err, tc.err) {
			t.Errorf("%v: code %s, reason %q, want %s and %q", tc.err, connect.CodeOf(err), reason, tc.code, tc.reason)
		}
	}
}

// TestKnownHidesPlaces: what a client reads of a refusal names its cause, and no kind, place or
// value, which the texts of a store have around it.
func TestKnownHidesPlaces(t *testing.T) {
	t.Parallel()
	for _, want := range []error{
		record.ErrNotFound, record.ErrExists, record.ErrMismatch, record.ErrConflict, record.ErrOversize, record.ErrRefused,
		record.ErrReserved, sealed.ErrReserved, record.ErrNoKey, record.ErrUnreadable,
	} {
		err := apiversion.Known(fmt.Errorf("write kind-1 secret: %w", record.Refuse(fmt.Errorf("index 7: %w", want))))
		if !errors.Is(want, record.ErrRefused) {
			err = apiversion.Known(fmt.Errorf("write kind-1 secret: %w", want))
		}
		if err.Error() != want.Error() {
			t.Errorf("%v is shown as %v", want, err)
		}
	}
}
