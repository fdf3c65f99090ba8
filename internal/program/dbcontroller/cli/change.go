package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// resolveTimeout limits the check whether a change with a lost answer was made.
const resolveTimeout = 10 * time.Second

// change is a call that changes something. It is sent once, never retried blindly. If its answer is
// lost, a dry run shows whether anything is left to do. Any controller may answer the dry run.
type change[S any] struct {
	send, dry func(context.Context) (*connect.Response[S], error)
	done      func(*S) bool // a dry run's answer shows nothing left to do
}

// make sends the change. resolved reports that the answer was lost and a dry run found the change
// done. If the outcome stays unknown, the error has exitUnknown.
func (ch change[S]) make(ctx context.Context, c *connection, say io.Writer) (answer *S, resolved bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	res, err := ch.send(bounded)
	cancel()
	if err == nil {
		return res.Msg, false, nil
	}
	// The controller answered, or the request never left: nothing to resolve.
	if !lost(err) {
		return nil, false, err
	}
	const again = "'dbcontroller history' shows the outcome; it is safe to repeat the command"
	if ctx.Err() != nil {
		return nil, false, exit.Errorf(exit.Unknown, "interrupted before the controller answered, so the change may have been made: %s", again)
	}
	fmt.Fprintf(say, "the answer was lost (%s): asking for the outcome\n", printable.Line(c.explain(err).Error()))
	// A dry run may be repeated at another controller, unlike the change.
	asking, cancel := context.WithTimeout(client.Repeatable(ctx), min(c.timeout, resolveTimeout))
	defer cancel()
	now, failed := ch.dry(asking)
	switch {
	case failed != nil:
		return nil, false, exit.Errorf(exit.Unknown, "the outcome is unknown: the answer was lost and the controllers at %s did not report it (%s): %s", c.address(), c.explain(failed), again)
	// "Not done yet" proves nothing: the first request may still be on its way.
	case !ch.done(now.Msg):
		return nil, false, exit.Errorf(exit.Unknown, "the outcome is unknown: the answer was lost and the change is not made yet: %s", again)
	}
	fmt.Fprintln(say, "the change is made")
	return now.Msg, true, nil
}

// would makes a call that changes nothing, such as a dry run, within --timeout.
func would[S any](ctx context.Context, c *connection, f func(context.Context) (*connect.Response[S], error)) (*S, error) {
	ctx, cancel := context.WithTimeout(client.Repeatable(ctx), c.timeout)
	defer cancel()
	res, err := f(ctx)
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// lost reports whether an error leaves open if a change was made.
func lost(err error) bool {
	if neverSent(err) {
		return false
	}
	if !connect.IsWireError(err) {
		return true
	}
	switch connect.CodeOf(err) { //nolint:exhaustive // any other code means that the controller changed nothing
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeInternal:
		return true
	}
	return false
}

// idle reports whether all effects are "nothing".
func idle(effects []string) bool {
	for _, e := range effects {
		if !strings.HasPrefix(e, "nothing: ") {
			return false
		}
	}
	return len(effects) > 0
}

func neverSent(err error) bool {
	var unsent *client.NotSentError
	return errors.As(err, &unsent)
}
