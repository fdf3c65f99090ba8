package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"dbcontroller.dev/record"
)

// UnavailableError shows an error as it is, and is also record.ErrUnavailable.
type UnavailableError struct{ Shown error }

func (e *UnavailableError) Error() string   { return e.Shown.Error() }
func (e *UnavailableError) Unwrap() []error { return []error{e.Shown, record.ErrUnavailable} }

// AsUnavailable marks shown as record.ErrUnavailable if waiting may cure err. shown is err in the
// form that users see.
func AsUnavailable(err, shown error) error {
	if !unavailable(err) {
		return shown
	}
	return &UnavailableError{shown}
}

// unavailable reports whether a database that failed to open or to pass a check may work later with
// the same configuration. A refused login, privilege or kind of server needs a change by a person,
// and so does an unreadable connection string. A server that is down, starts, steps down, elects or
// is too busy recovers by itself.
func unavailable(err error) bool {
	var unsupported *record.UnsupportedError
	var selection topology.ServerSelectionError
	var server mongo.ServerError
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &unsupported), loginRefused(err):
		return false
	case errors.As(err, &selection):
		// The login may be refused while the driver still looks for a primary.
		for _, s := range selection.Desc.Servers {
			if loginRefused(s.LastError) {
				return false // the driver noticed while it looked for a primary
			}
		}
		return true
	case errors.As(err, &server):
		return WorthRepeating(err) || HasCode(err, CodeOutOfDiskSpace) // the disk may be full for now
	default:
		return true // no server has answered
	}
}

// lookupFailed reports whether a mongodb+srv string could not be resolved because no name server
// answered. The driver resolves it before it looks for servers. An unknown name is a mistake in the
// string.
func lookupFailed(err error) bool {
	var name *net.DNSError
	return errors.As(err, &name) && !name.IsNotFound
}

// loginRefused reports whether a server has refused the login. A connection that broke during the
// login does not count.
func loginRefused(err error) bool {
	var login *auth.Error
	var answer driver.Error
	return errors.As(err, &login) && errors.As(err, &answer) &&
		!answer.NetworkError() && !answer.NodeIsRecovering() && !answer.NotPrimary()
}

// IsLoginRefused reports whether an error means that the server refused the login, so the command
// was not sent. An earlier attempt may have been sent; the error is then also record.ErrUnknown.
func IsLoginRefused(err error) bool { return loginRefused(err) }

// IsUnavailable reports whether an error of any command means that a database could not be reached,
// had no primary, or had no room on its disk. The same command may succeed later. It does not say
// whether a write had an effect; check record.ErrUnknown first.
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
		return mongo.IsNetworkError(err) || mongo.IsTimeout(err) || HasCode(err, CodeOutOfDiskSpace) || HasCode(err, severed...)
	default:
		return mongo.IsNetworkError(err) || mongo.IsTimeout(err)
	}
}

// NewBackoff returns the delays between attempts.
func NewBackoff(ctx context.Context, limit time.Duration) backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 2 * time.Millisecond
	b.MaxInterval = 250 * time.Millisecond
	b.MaxElapsedTime = limit
	return backoff.WithContext(b, ctx)
}

// Retry calls attempt until it succeeds, returns a permanent error, ctx ends, or limit has passed.
// It returns the error of the last attempt, even if ctx ends between two attempts. The end of ctx
// alone would make a write with an unknown outcome look like one that was never sent.
func Retry(ctx context.Context, limit time.Duration, attempt func() error) error {
	// The first attempt runs without a backoff, which most calls never need.
	last := attempt()
	if last == nil {
		return nil // before allocating what only a retry needs
	}
	again := false
	err := backoff.Retry(func() error {
		if again {
			last = attempt()
		}
		again = true
		return last
	}, NewBackoff(ctx, limit))
	var final *backoff.PermanentError
	if err == nil || errors.As(last, &final) {
		return err
	}
	// The backoff noticed the end of ctx between two attempts.
	if ended := ctx.Err(); ended != nil && !errors.Is(last, ended) {
		return fmt.Errorf("%w: %w", ended, last)
	}
	return last
}

// Permanent wraps an error to end a retry. A nil error stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return backoff.Permanent(err)
}

// OneLine shortens the driver's report of a failed server selection to one line.
func (n *Conn) OneLine(err error) error {
	var selection topology.ServerSelectionError
	// Any other error is one line already.
	if !errors.As(err, &selection) && !errors.Is(err, context.DeadlineExceeded) && !mongo.IsNetworkError(err) {
		return WithPrivilege(err)
	}
	var reasons []string
	for _, s := range selection.Desc.Servers {
		if s.LastError != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", s.Addr, rootOf(s.LastError)))
		}
	}
	switch {
	case len(reasons) > 0:
		return fmt.Errorf("no primary can be reached (%s)", strings.Join(reasons, "; "))
	case len(selection.Desc.Servers) > 0:
		return errors.New("the replica set has no primary")
	default:
		return fmt.Errorf("no answer in time: %w", err)
	}
}

func rootOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

const readRetryLimit = 15 * time.Second

// Reading retries a read after temporary errors. Repeating a read is always safe.
func Reading(ctx context.Context, read func() error) error {
	return Retry(ctx, readRetryLimit, func() error {
		err := read()
		// The token will not become valid again: report a fence at once.
		if err == nil || ctx.Err() != nil || HasCode(err, CodeUUIDMismatch) || !readAgain(err) {
			return Permanent(err)
		}
		return err
	})
}

// readAgain excludes errors that only fences retry, lock timeouts and lookups by name, and a result
// beyond the bound of the read, which the next attempt would read for nothing.
func readAgain(err error) bool {
	return !errors.Is(err, record.ErrTooLarge) && (WorthRepeating(err) || HasCode(err, CodeSnapshotUnavailable)) && !isContext(err) && !HasCode(err, CodeNamespaceNotFound, codeMaxTimeExpired)
}
