// Package exit has the exit statuses of commands, and the errors that carry them.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/upgradestate"
)

// Status is the exit status of a command. Each kind of failure has its own, so that a script can tell
// errors to correct from errors to retry. The numbers are stable; docs/cli.md lists them.
type Status int

// The exit statuses. All explains each.
const (
	Done        Status = 0
	Findings    Status = 1
	Usage       Status = 2
	NotFound    Status = 3
	Refused     Status = 4
	NotAllowed  Status = 5
	Unreachable Status = 6
	Timeout     Status = 7
	Unknown     Status = 8
	Failed      Status = 9
	Misconfig   Status = 78
	Interrupted Status = 130
)

// All lists every exit status with its name and meaning, for the CLI reference.
var All = []struct {
	Status        Status
	Name, Meaning string
}{
	{Done, "done", "The command succeeded, or its change was made already. A search that finds nothing succeeds too."},
	{Findings, "findings", "The command finished and found a problem: `verify` differences, `plan` a failed check, `rehearse` problems, `lens lint` and `lens diff` errors or failing records, `lens try` a failing record."},
	{Usage, "usage", "A flag, an argument or a given file is wrong, including the configuration and lenses. Nothing was changed; the same command fails again. `run` and `proxy` have 78 for this."},
	{NotFound, "not found", "The given deployment, parked record, upgrade or update does not exist."},
	{Refused, "refused", "The state of the deployment does not allow the command, or the command needs a confirmation that the message shows. Nothing was changed."},
	{NotAllowed, "not allowed", "The caller is not authenticated, or lacks the role for the call."},
	{Unreachable, "unreachable", "No controller, etcd or database answers, or the answering one cannot serve the command now. Nothing was changed; retry later."},
	{Timeout, "timeout", "A call that changes nothing got no answer within --timeout."},
	{Unknown, "outcome unknown", "A change was sent and its answer was lost. The change is not visible yet, but it may still be made. `history` shows the outcome; it is safe to repeat the command."},
	{Failed, "failed", "Any other error, for example a controller that cannot read its own records."},
	{Misconfig, "configuration", "`run` or `proxy` could not start, because a flag, an argument or the configuration is wrong. The same command fails again, so a service manager should not restart it. The status is not 2, because the Go runtime ends a program with 2 when it crashes, and then a restart helps."},
	{Interrupted, "interrupted", "SIGINT or SIGTERM ended the command. Its running call at a controller ends, too."},
}

// Error is an error with its exit status.
type Error struct {
	exit Status
	err  error
}

func (f *Error) Error() string { return f.err.Error() }

func (f *Error) Unwrap() error { return f.err }

// With wraps err with an exit status. It returns nil if err is nil.
func With(e Status, err error) error {
	if err == nil {
		return nil
	}
	return &Error{e, err}
}

// Errorf returns an error with an exit status.
func Errorf(e Status, format string, args ...any) error {
	return &Error{e, fmt.Errorf(format, args...)}
}

// Usagef returns an error about flags, arguments or files that the user gave.
func Usagef(format string, args ...any) error { return Errorf(Usage, format, args...) }

// Refusedf returns an error for an operation that the present state does not allow.
func Refusedf(format string, args ...any) error { return Errorf(Refused, format, args...) }

// Timeoutf returns an error for an answer that did not come in time.
func Timeoutf(format string, args ...any) error { return Errorf(Timeout, format, args...) }

// Finding returns the error of a command that worked and found problems.
func Finding(text string) error { return &Error{Findings, errors.New(text)} }

// Of returns the exit status for err. An error without a status gets one from its type.
func Of(err error) Status {
	var (
		f         *Error
		etcd      *process.EtcdError
		file      *config.Error
		parse     *lens.ParseError
		path      *fs.PathError
		refusal   *upgradestate.RefusedError
		mismatch  *identity.MismatchError
		undecided *identity.UndecidedError
		unsent    *client.NotSentError
	)
	// The order matters. An explicit status wins over the type of the error below it. A cancelled
	// context wins over the errors that the cancellation caused.
	switch {
	case err == nil:
		return Done
	case errors.As(err, &f):
		return f.exit
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &etcd), errors.As(err, &unsent):
		return Unreachable
	case errors.As(err, &file), errors.As(err, &parse), errors.As(err, &path),
		strings.HasPrefix(err.Error(), "unknown command "): // cobra has no type for it
		return Usage
	case errors.As(err, &refusal), errors.As(err, &mismatch), errors.As(err, &undecided):
		return Refused
	// A deadline counts only if no more specific cause has matched.
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case databases.Unavailable(err):
		return Unreachable
	default:
		return Failed
	}
}

// OfService returns err with the status of a service that could not start: Misconfig instead of Usage.
func OfService(err error) error {
	if Of(err) == Usage {
		return With(Misconfig, err)
	}
	return err
}

// OfStart returns err with the status of a command that could not start: what has no other status
// counts as an error in the configuration.
func OfStart(err error) error {
	if Of(err) == Failed {
		return With(Usage, err)
	}
	return err
}
