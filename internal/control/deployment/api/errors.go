package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// errStopping ends long calls when the controller stops, or when another Service answers for its deployment
// in the same process. The caller should call another controller.
var errStopping = errors.New("this controller is stopping: retry")

// FullError reports that a limit is reached, and how to go on.
type FullError struct {
	What string // such as "watches"
	Most int
	Do   string
}

func (e *FullError) Error() string {
	return fmt.Sprintf("there are %d %s already, and no more may be: %s", e.Most, e.What, e.Do)
}

// connectError maps errors to codes and one line of text; no other function does. Invalid
// arguments, missing objects, and the caller's own cancellation or deadline get a plain code. All
// other errors also carry a reason.
func connectError(err error) error {
	var done *connect.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	var (
		full      *FullError
		argument  *deployment.InvalidError
		refused   *upgradestate.RefusedError
		notParked *deployment.NotParkedError
		removal   *deployment.RemovalError
	)
	// The first match decides: an error can wrap several of these.
	switch {
	case errors.As(err, &full):
		return refusal.New(refusal.Full, oneLine(full.Error()))
	case errors.As(err, &argument):
		return line(connect.CodeInvalidArgument, argument.Error())
	case errors.As(err, &refused):
		return refusal.New(refusal.NotInThisState, oneLine(refused.Reason))
	case errors.As(err, &notParked):
		return line(connect.CodeNotFound, notParked.Error())
	case errors.Is(err, deployment.ErrNotFound), errors.Is(err, deployment.ErrNotRegistered), errors.Is(err, deployment.ErrNoRollout):
		return line(connect.CodeNotFound, err.Error())
	case errors.Is(err, upgradestate.ErrOutdated):
		return refusal.New(refusal.NotInThisState, oneLine(err.Error()))
	case errors.As(err, &removal):
		return refusal.New(refusal.NotInThisState, oneLine(removal.Error()))
	case errors.Is(err, deployment.ErrFormat):
		return refusal.New(refusal.ControllerTooOld, oneLine(err.Error()))
	case errors.Is(err, deployment.ErrCorrupt):
		return refusal.New(refusal.Unreadable, oneLine(err.Error()))
	case errors.Is(err, errStopping):
		return refusal.New(refusal.Stopping, errStopping)
	// A full etcd can have carried out the call. Repeating it does not help before there is room.
	case errors.Is(err, coord.ErrUnknown) && errors.Is(err, coord.ErrNoSpace):
		return refusal.New(refusal.OutcomeUnknown, oneLine("etcd is full: make room, check the deployment, then repeat the call: "+err.Error()))
	// The caller cannot know whether its call succeeded, so tell it how to find out.
	case errors.Is(err, coord.ErrUnknown):
		return refusal.New(refusal.OutcomeUnknown, oneLine(err.Error()+": check the deployment, then repeat the call"))
	case errors.Is(err, context.Canceled):
		return line(connect.CodeCanceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return line(connect.CodeDeadlineExceeded, err.Error())
	case errors.Is(err, record.ErrUnavailable):
		return refusal.New(refusal.DatabaseUnavailable, oneLine(err.Error()))
	default:
		return refusal.New(refusal.CoordinationUnavailable, oneLine(err.Error()))
	}
}

func line(code connect.Code, text string) error {
	return connect.NewError(code, oneLine(text))
}

func oneLine(text string) error { return errors.New(strings.Join(strings.Fields(text), " ")) }

// invalid returns the error for an invalid argument.
func invalid(field, value, want string) error {
	return &deployment.InvalidError{Field: field, Value: value, Want: want}
}

// refuse returns the error for a request that this service refuses.
func refuse(reason string) error { return &upgradestate.RefusedError{Reason: reason} }

// errorCodes maps the errors of every method with connectError. find returns the Service that answers
// about a deployment.
type errorCodes struct {
	find func(name string) (*Service, error)
}

var _ connect.Interceptor = errorCodes{}

// of is connectError, but adds a reason if this process's own deployment may only not exist yet.
func (c errorCodes) of(err error) error {
	// Only this process's own deployment can still be starting here.
	var absent *deployment.AbsentError
	if errors.As(err, &absent) {
		if s, _ := c.find(absent.Name); s != nil && absent.Name == s.own.Name() {
			if why := s.starting(s.own, ""); why != "" {
				return line(connect.CodeNotFound, err.Error()+" yet: "+why)
			}
		}
	}
	return connectError(err)
}

func (c errorCodes) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, c.of(err)
	}
}

func (c errorCodes) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return c.of(next(ctx, conn))
	}
}

func (errorCodes) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}
