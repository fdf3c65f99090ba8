package deployment

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller/coord"
	"dbcontroller/upgradestate"
)

func TestErrorsBecomeCodes(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("outer: %w", err) }
	for _, tc := range []struct {
		err  error
		want string
	}{
		{wrap(&InvalidError{"name", "x", "y"}), `invalid_argument: name "x": want y`},
		{wrap(&upgradestate.RefusedError{Reason: "no\n  way"}), "failed_precondition: no way"},
		{wrap(upgradestate.ErrOutdated), "failed_precondition: outer: event is outdated"},
		{wrap(ErrNotFound), "not_found: outer: deployment does not exist"},
		{wrap(ErrCorrupt), "data_loss: outer: stored value is corrupt"},
		{wrap(errStopping), "unavailable: this controller is stopping: ask again"},
		{wrap(coord.ErrUnknown), "unavailable: outer: outcome of the commit is unknown: look at the deployment, then repeat the call"},
		{wrap(context.Canceled), "canceled: outer: context canceled"},
		{wrap(context.DeadlineExceeded), "deadline_exceeded: outer: context deadline exceeded"},
		{errors.New("no endpoint answers"), "unavailable: no endpoint answers"},
		{wrap(connect.NewError(connect.CodeAborted, errors.New("x"))), "outer: aborted: x"},
	} {
		if got := connectError(tc.err).Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	if err := connectError(nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}
