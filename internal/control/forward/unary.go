package forward

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/appclient/client"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/refusal"
)

// server and remote are the two ends of a call, for their method expressions.
type (
	server = dbcontrollerv1connect.DeploymentServiceHandler
	remote = dbcontrollerv1connect.DeploymentServiceClient
)

// effect says whether a call may be made twice.
type effect bool

const (
	reads   effect = false
	changes effect = true
)

// named is a request about a deployment.
type named[Q any] interface {
	*Q
	GetName() string
}

// unary forwards a call, or answers it here.
//
// If no controller of this coordination store could be reached, this process answers. What needs a
// controller that runs the deployment is then refused, and everything else works with etcd alone.
func unary[Q, S any, N named[Q]](ctx context.Context, h *Handler, req *connect.Request[Q], what effect,
	here func(server, context.Context, *connect.Request[Q]) (*connect.Response[S], error),
	there func(remote, context.Context, *connect.Request[Q]) (*connect.Response[S], error),
) (*connect.Response[S], error) {
	name := N(req.Msg).GetName()
	c := h.callerOf(ctx, req.Header())
	p, err := h.find(ctx, c, name)
	if err != nil {
		return nil, err
	}
	answer := func() (*connect.Response[S], error) { return here(h.local, ctx, req) }
	if p == nil {
		res, err := answer()
		return res, h.misdirected(c, name, err)
	}
	at, err := p.peersFor(c)
	if err != nil {
		return instead(h, p, err, answer)
	}
	repeatable := what == reads
	if q, ok := any(req.Msg).(interface{ GetDryRun() bool }); ok && q.GetDryRun() {
		repeatable = true
	}
	sending, cancel := h.bounded(ctx, p, repeatable)
	defer cancel()
	var res *connect.Response[S]
	if at.calls.Acquire(sending, 1) == nil {
		defer at.calls.Release(1)
		res, err = there(at, sending, request(c, req.Msg))
	} else {
		err = &client.NotSentError{Err: context.Cause(sending)}
	}
	if err == nil {
		p.failing.Store(false)
		if d, ok := any(res.Msg).(*pb.Deployment); ok {
			d.Region = p.region
		}
		return connect.NewResponse(res.Msg), nil // without the headers, which are about the other connection
	}
	err = because(sending, err)
	refused := p.relayed(ctx, at, err, repeatable)
	switch {
	case ctx.Err() != nil:
	case p.region == "" && elsewhere(err, repeatable):
		return instead(h, p, refused, answer)
	case connect.CodeOf(err) == connect.CodeNotFound:
		h.forget(name)
	}
	return nil, refused
}

// finishing is the time for a controller to finish its calls after it has taken its announcement away.
const finishing = 2 * limits.StopTime

// bounded returns a context for a call to a place. It ends early if the place hangs.
func (h *Handler) bounded(ctx context.Context, p *place, repeatable bool) (context.Context, context.CancelFunc) {
	while := finishing
	if repeatable {
		ctx, while = client.Repeatable(ctx), 0
	}
	ctx, cancel := h.whileLive(ctx, p, while)
	if _, has := ctx.Deadline(); has {
		return ctx, cancel
	}
	// No deadline: the client would divide it among the controllers of a place.
	ctx, late := context.WithCancelCause(ctx)
	timer := time.AfterFunc(h.cfg.Patience, func() { late(fmt.Errorf("no answer within %v", h.cfg.Patience)) })
	return ctx, func() { timer.Stop(); late(nil); cancel() }
}

// because replaces the error of a call that ended with its context by the reason of that.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil && outcomeOf(err) == unknown {
		return context.Cause(ctx)
	}
	return err
}

// misdirected explains an answer to another controller that takes this one for an owner of a deployment.
func (h *Handler) misdirected(c caller, name string, err error) error {
	var not *api.ElsewhereError
	if !c.forwarded || !errors.As(err, &not) {
		return err
	}
	return refusal.New(refusal.NotInThisState, fmt.Errorf("controller %s does not run %s, but its address was announced for it: check api.address of the controllers that run it", h.cfg.ID, name))
}

// instead answers here for controllers of this coordination store that a call could not be sent to. If only
// they can answer, the error is why.
func instead[S any](h *Handler, p *place, why error, here func() (S, error)) (S, error) {
	var none S
	if p.region != "" {
		return none, why
	}
	res, err := here()
	if errors.Is(err, deployment.ErrNotFound) {
		return res, err // as the other controller has said
	}
	if !p.failing.Swap(true) { // one line until a call succeeds
		h.cfg.Log.Warn("cannot forward calls to another controller: answering them here, as far as that is possible", zap.Error(why))
	}
	var not *api.ElsewhereError
	if errors.As(err, &not) {
		return none, why
	}
	return res, err
}
