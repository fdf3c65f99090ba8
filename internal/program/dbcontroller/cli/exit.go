package cli

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

// exit is the exit status of a command. Each kind of failure has its own, so that a script can tell
// errors to correct from errors to retry. The numbers are stable; docs/cli.md lists them.
type exit int

const (
	exitDone        exit = 0
	exitFindings    exit = 1
	exitUsage       exit = 2
	exitNotFound    exit = 3
	exitRefused     exit = 4
	exitNotAllowed  exit = 5
	exitUnreachable exit = 6
	exitTimeout     exit = 7
	exitUnknown     exit = 8
	exitFailed      exit = 9
	exitInterrupted exit = 130
)

// exits lists every exit status with its name and meaning, for the CLI reference.
var exits = []struct {
	exit          exit
	name, meaning string
}{
	{exitDone, "done", "The command succeeded, or its change was made already. A search that finds nothing succeeds too."},
	{exitFindings, "findings", "The command finished and found a problem: `verify` differences, `plan` a failed check, `rehearse` problems, `lens lint` and `lens diff` errors or failing records, `lens try` a failing record."},
	{exitUsage, "usage", "A flag, an argument or a given file is wrong, including the configuration and lenses. Nothing was changed; the same command fails again."},
	{exitNotFound, "not found", "The given deployment, parked record, upgrade or update does not exist."},
	{exitRefused, "refused", "The state of the deployment does not allow the command, or the command needs a confirmation that the message shows. Nothing was changed."},
	{exitNotAllowed, "not allowed", "The caller is not authenticated, or lacks the role for the call."},
	{exitUnreachable, "unreachable", "No controller, etcd or database answers, or the answering one cannot serve the command now. Nothing was changed; retry later."},
	{exitTimeout, "timeout", "A call that changes nothing got no answer within --timeout."},
	{exitUnknown, "outcome unknown", "A change was sent and its answer was lost. The change is not visible yet, but it may still be made. `history` shows the outcome; it is safe to repeat the command."},
	{exitFailed, "failed", "Any other error, for example a controller that cannot read its own records."},
	{exitInterrupted, "interrupted", "SIGINT or SIGTERM ended the command. Its running call at a controller ends, too."},
}

// failure is an error with its exit status.
type failure struct {
	exit exit
	err  error
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// failed wraps err with an exit status. It returns nil if err is nil.
func failed(e exit, err error) error {
	if err == nil {
		return nil
	}
	return &failure{e, err}
}

func failedf(e exit, format string, args ...any) error {
	return &failure{e, fmt.Errorf(format, args...)}
}

// usage returns an error about flags, arguments or files that the user gave.
func usage(format string, args ...any) error { return failedf(exitUsage, format, args...) }

// refused returns an error for an operation that the present state does not allow.
func refused(format string, args ...any) error { return failedf(exitRefused, format, args...) }

func timedOut(format string, args ...any) error { return failedf(exitTimeout, format, args...) }

// finding returns the error of a command that worked and found problems.
func finding(text string) error { return &failure{exitFindings, errors.New(text)} }

// ExitStatus returns the exit status for the error that a command ended with. nil gives 0.
// docs/cli.md lists all of them.
func ExitStatus(err error) int { return int(exitOf(err)) }

// exitOf returns the exit status for err. An error that failed did not wrap gets its status from
// its type.
func exitOf(err error) exit {
	var (
		f         *failure
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
		return exitDone
	case errors.As(err, &f):
		return f.exit
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &etcd), errors.As(err, &unsent):
		return exitUnreachable
	case errors.As(err, &file), errors.As(err, &parse), errors.As(err, &path),
		strings.HasPrefix(err.Error(), "unknown command "): // cobra has no type for it
		return exitUsage
	case errors.As(err, &refusal), errors.As(err, &mismatch), errors.As(err, &undecided):
		return exitRefused
	// A deadline counts only if no more specific cause has matched.
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case databases.Unavailable(err):
		return exitUnreachable
	default:
		return exitFailed
	}
}
