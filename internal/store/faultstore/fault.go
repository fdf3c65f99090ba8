package faultstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// ErrInjected is wrapped by every error of a Fault made by this package.
var ErrInjected = errors.New("injected fault")

// Command is the name of a method of the wrapped interfaces.
type Command string

// The commands. Next and Close belong to a stream of Watch or Follow.
const (
	Scan         Command = "scan"
	Read         Command = "read"
	Apply        Command = "apply"
	Load         Command = "load"
	Swap         Command = "swap"
	Position     Command = "position"
	Watch        Command = "watch"
	Follow       Command = "follow"
	Nudge        Command = "nudge"
	Next         Command = "next"
	Close        Command = "close"
	Prepare      Command = "prepare"
	Ready        Command = "ready"
	Unready      Command = "unready"
	Fence        Command = "fence"
	Prevent      Command = "prevent"
	Hindrances   Command = "hindrances"
	Uphold       Command = "uphold"
	Unfence      Command = "unfence"
	Locate       Command = "locate"
	Check        Command = "check"
	Describe     Command = "describe"
	Size         Command = "size"
	Provision    Command = "provision"
	Expire       Command = "expire"
	BuildIndexes Command = "buildIndexes"
	Reshape      Command = "reshape"
	Require      Command = "require"
	Split        Command = "split"
	Purge        Command = "purge"
	Drop         Command = "drop"
	Health       Command = "health"
	Identity     Command = "identity"
	Identify     Command = "identify"
	Marks        Command = "marks"
	PutMark      Command = "putMark"
	Claim        Command = "claim"
	Claims       Command = "claims"
	Release      Command = "release"
	Get          Command = "get"
	Select       Command = "select"
	List         Command = "list"
	ListNames    Command = "listNames"
	Write        Command = "write"
	Once         Command = "once"
)

// Op is one command as an Injector sees it, before the command runs.
type Op struct {
	Command Command
	// Kinds are the kinds in the command; empty: it names none.
	Kinds []string
	// Tokens are the tokens in the command, in no order.
	Tokens []record.Token
	// To is the name or mark in a Fence, Prevent, Uphold or Unfence.
	To string
}

// Fault is the effect on a command. Its fields apply in the order Latency, Pause, Before, the
// command, PauseAfter, After. The zero Fault has no effect.
type Fault struct {
	// Latency delays the command, until its context ends.
	Latency time.Duration
	// Pause holds the command until the channel is closed, like a process that stopped before it
	// could send. The end of the context does not release it: a stopped process sends late,
	// whatever its deadline was.
	Pause <-chan struct{}
	// Before is returned instead of running the command, as if it was never sent.
	Before error
	// PauseAfter holds the answer after the command ran, until the channel is closed.
	PauseAfter <-chan struct{}
	// After replaces the answer after the command ran, whatever it was, like a lost
	// acknowledgement.
	After error
}

func (f Fault) none() bool {
	return f.Latency == 0 && f.Pause == nil && f.Before == nil && f.PauseAfter == nil && f.After == nil
}

// Lost returns the fault of a lost acknowledgement: the command ran, but the caller cannot know.
func Lost() Fault { return Fault{After: fmt.Errorf("%w: %w", ErrInjected, record.ErrUnknown)} }

// Down returns the fault of an unreachable server: the command did not run.
func Down() Fault { return Fault{Before: fmt.Errorf("%w: connection refused", ErrInjected)} }

// Cut returns the fault of a connection that broke after the command was sent. The command ran, and
// the error does not show it.
func Cut() Fault { return Fault{After: fmt.Errorf("%w: connection reset", ErrInjected)} }

// Rolled returns the fault of a change log that no longer reaches back. It is for Watch and Next.
func Rolled() Fault { return Fault{Before: fmt.Errorf("%w: %w", ErrInjected, record.ErrHistoryLost)} }

// Injector decides about the fault of a command. It must be safe for concurrent use.
type Injector interface {
	Inject(op Op) Fault
}

// InjectorFunc is a function that implements Injector.
type InjectorFunc func(op Op) Fault

// Inject calls f.
func (f InjectorFunc) Inject(op Op) Fault { return f(op) }

// do runs one command with its fault.
func do[T any](ctx context.Context, inj Injector, op Op, command func() (T, error)) (T, error) {
	var none T
	f := inj.Inject(op)
	if f.Latency > 0 {
		select {
		case <-time.After(f.Latency):
		case <-ctx.Done():
			return none, fmt.Errorf("%s: %w", op.Command, ctx.Err())
		}
	}
	if f.Pause != nil {
		// Deliberately ignores ctx, see Fault.Pause.
		<-f.Pause
	}
	if f.Before != nil {
		return none, fmt.Errorf("%s: %w", op.Command, f.Before)
	}
	res, err := command()
	// A paused answer also ignores ctx: the command has had its effect.
	if f.PauseAfter != nil {
		<-f.PauseAfter
	}
	if f.After != nil {
		return none, fmt.Errorf("%s: %w", op.Command, f.After)
	}
	return res, err
}

// nothing is the answer of commands that only return an error.
type nothing struct{}

func doErr(ctx context.Context, inj Injector, op Op, command func() error) error {
	_, err := do(ctx, inj, op, func() (nothing, error) { return nothing{}, command() })
	return err
}
