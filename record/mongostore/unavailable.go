package mongostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"dbcontroller.dev/record"
)

// unavailableError is shown as it is, and is record.ErrUnavailable.
type unavailableError struct{ shown error }

func (e *unavailableError) Error() string   { return e.shown.Error() }
func (e *unavailableError) Unwrap() []error { return []error{e.shown, record.ErrUnavailable} }

// asUnavailable marks shown, which is err as it is reported, as something that waiting may
// cure.
func asUnavailable(err, shown error) error {
	if !unavailable(err) {
		return shown
	}
	return &unavailableError{shown}
}

// unavailable reports whether a server that could not be opened or checked for err may be
// used later with the same configuration. A login, a privilege or a kind of server that
// was refused stays refused until a person changes something, and so does a connection
// string that cannot be read; whatever comes of a server that is away, starts, steps down,
// elects or is too busy passes.
func unavailable(err error) bool {
	var unsupported *record.UnsupportedError
	var selection topology.ServerSelectionError
	var server mongo.ServerError
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &unsupported), loginRefused(err):
		return false
	case errors.As(err, &selection):
		for _, s := range selection.Desc.Servers {
			if loginRefused(s.LastError) {
				return false // the driver found out while it looked for a primary
			}
		}
		return true
	case errors.As(err, &server):
		return worthRepeating(err) || hasCode(err, codeOutOfDiskSpace) // somebody makes room
	default:
		return true // no server has answered
	}
}

// lookupFailed reports whether a mongodb+srv string could not be read for want of a name
// server, which the driver asks before it looks for servers. That there is no such name is
// a mistake in the string.
func lookupFailed(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && !name.IsNotFound
}

// loginRefused reports whether a server has answered to the login with a refusal. That a
// connection broke in the middle of it is none.
func loginRefused(err error) bool {
	var login *auth.Error
	var answer driver.Error
	return errors.As(err, &login) && errors.As(err, &answer) &&
		!answer.NetworkError() && !answer.NodeIsRecovering() && !answer.NotPrimary()
}

// IsLoginRefused reports whether an error, of whatever command, is that the server does not
// take the login: the command was not sent. What was before it may have been, and then the
// error is record.ErrUnknown, too.
func IsLoginRefused(err error) bool { return loginRefused(err) }

// IsUnavailable reports whether any error, of whatever command, means that a database could
// not be reached, had no primary or no room on its disk, so that the same may succeed later. It knows nothing of
// effects: after a write, ErrUnknown decides.
func IsUnavailable(err error) bool {
	var selection topology.ServerSelectionError
	var server mongo.ServerError
	switch {
	case err == nil || errors.Is(err, context.Canceled) || loginRefused(err):
		return false
	case errors.Is(err, record.ErrUnavailable):
		return true
	case errors.As(err, &selection):
		return unavailable(err)
	case errors.As(err, &server):
		return mongo.IsNetworkError(err) || mongo.IsTimeout(err) || hasCode(err, codeNotWritablePrimary,
			codeNotPrimaryNoSecondaryOk, codeNotPrimaryOrSecondary, codeInterruptedAtShutdown, codeInterruptedReplState,
			codeShutdownInProgress, codePrimarySteppedDown, codeHostUnreachable, codeNetworkTimeout, codeOutOfDiskSpace)
	default:
		return mongo.IsNetworkError(err) || mongo.IsTimeout(err)
	}
}

func newBackoff(ctx context.Context, limit time.Duration) backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 2 * time.Millisecond
	b.MaxInterval = 250 * time.Millisecond
	b.MaxElapsedTime = limit
	return backoff.WithContext(b, ctx)
}

// retry calls attempt until it succeeds, fails for good (permanent), ctx ends or limit is
// over. Its error is that of the last attempt, also where ctx ends between two of them: the
// loop itself would answer with the end of ctx alone, and a write whose end is unknown would
// look like one that was never made.
func retry(ctx context.Context, limit time.Duration, attempt func() error) error {
	last := attempt()
	if last == nil {
		return nil // before anything is made that only the next attempt needs
	}
	again := false
	err := backoff.Retry(func() error {
		if again {
			last = attempt()
		}
		again = true
		return last
	}, newBackoff(ctx, limit))
	var final *backoff.PermanentError
	if err == nil || errors.As(last, &final) {
		return err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(last, ended) {
		return fmt.Errorf("%w: %w", ended, last)
	}
	return last
}

// permanent, returned by an attempt, ends a retry. It keeps a nil error nil.
func permanent(err error) error {
	if err == nil {
		return nil
	}
	return backoff.Permanent(err)
}
