package faultstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// ErrInjected is in every error that a Fault of this package's making carries.
var ErrInjected = errors.New("injected fault")

// Command names a method of the wrapped interfaces.
type Command string

// The commands. Next and Close are those of a stream that Watch or Follow opened.
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

// Op is one command as an Injector sees it, before it is done.
type Op struct {
	Command Command
	// Kinds that the command names, by kind; empty where it names none.
	Kinds []string
	// Tokens that it carries, in no order.
	Tokens []record.Token
	// To is the name or mark of a Fence, Prevent or Unfence.
	To string
}

// Fault is what happens to a command. The fields apply in the order Latency, Pause,
// Before, (the command), PauseAfter, After. The zero Fault does nothing.
type Fault struct {
	// Latency delays the command; its context may end it.
	Latency time.Duration
	// Pause holds the command until the channel is closed, like a process that was
	// stopped before it could send. The end of its context does not release it: a stopped
	// process sends late, whatever its deadline was.
	Pause <-chan struct{}
	// Before is returned instead of doing the command: it was never sent.
	Before error
	// PauseAfter holds the answer of a command that was done.
	PauseAfter <-chan struct{}
	// After is returned in place of the answer of a command that was done, whatever it
	// was: a lost acknowledgement.
	After error
}

func (f Fault) none() bool {
	return f.Latency == 0 && f.Pause == nil && f.Before == nil && f.PauseAfter == nil && f.After == nil
}

// Lost is the fault of a lost acknowledgement: done, but the caller cannot know.
func Lost() Fault { return Fault{After: fmt.Errorf("%w: %w", ErrInjected, record.ErrUnknown)} }

// Down is the fault of a server that cannot be reached: nothing was done.
func Down() Fault { return Fault{Before: fmt.Errorf("%w: connection refused", ErrInjected)} }

// Cut is the fault of a connection that broke after the command was sent: it was done,
// and the error does not show it.
func Cut() Fault { return Fault{After: fmt.Errorf("%w: connection reset", ErrInjected)} }

// Rolled is the fault of a change log that no longer reaches back: for Watch and Next.
func Rolled() Fault { return Fault{Before: fmt.Errorf("%w: %w", ErrInjected, record.ErrHistoryLost)} }

// Injector decides what happens to a command. It is called concurrently.
type Injector interface {
	Inject(op Op) Fault
}

// InjectorFunc is an Injector of one function.
type InjectorFunc func(op Op) Fault

// Inject calls f.
func (f InjectorFunc) Inject(op Op) Fault { return f(op) }

// do runs one command under its fault.
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
		<-f.Pause
	}
	if f.Before != nil {
		return none, fmt.Errorf("%s: %w", op.Command, f.Before)
	}
	res, err := command()
	if f.PauseAfter != nil {
		<-f.PauseAfter
	}
	if f.After != nil {
		return none, fmt.Errorf("%s: %w", op.Command, f.After)
	}
	return res, err
}

// nothing is the answer of commands that answer with an error alone.
type nothing struct{}

func doErr(ctx context.Context, inj Injector, op Op, command func() error) error {
	_, err := do(ctx, inj, op, func() (nothing, error) { return nothing{}, command() })
	return err
}
