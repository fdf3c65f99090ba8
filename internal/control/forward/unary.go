package forward

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/appclient/client"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment/api"
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
	if p == nil {
		return here(h.local, ctx, req)
	}
	at, err := p.peersFor(c)
	if err != nil {
		return instead(h, p, err, func() (*connect.Response[S], error) { return here(h.local, ctx, req) })
	}
	if err := at.calls.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer at.calls.Release(1)
	repeatable := what == reads
	if q, ok := any(req.Msg).(interface{ GetDryRun() bool }); ok && q.GetDryRun() {
		repeatable = true
	}
	sending := ctx
	if repeatable {
		sending = client.Repeatable(ctx)
	}
	res, err := there(at, sending, request(c, req.Msg))
	if err == nil {
		p.failing.Store(false)
		if d, ok := any(res.Msg).(*pb.Deployment); ok {
			d.Region = p.region
		}
		return connect.NewResponse(res.Msg), nil // without the headers, which are about the other connection
	}
	told := p.relayed(ctx, at, err, repeatable)
	switch was := outcomeOf(err); {
	case ctx.Err() != nil:
	case was == answered && connect.CodeOf(err) == connect.CodeNotFound:
		h.forget(name)
	case was == unsent, was == unknown && repeatable:
		return instead(h, p, told, func() (*connect.Response[S], error) { return here(h.local, ctx, req) })
	}
	return nil, told
}

// instead answers here for controllers of this coordination store that a call could not be sent to. If only
// they can answer, the error is why.
func instead[S any](h *Handler, p *place, why error, here func() (S, error)) (S, error) {
	var none S
	if p.region != "" {
		return none, why
	}
	if !p.failing.Swap(true) { // one line until a call succeeds
		h.cfg.Log.Warn("cannot forward calls to another controller: answering them here, as far as that is possible", zap.Error(why))
	}
	res, err := here()
	var elsewhere *api.ElsewhereError
	if errors.As(err, &elsewhere) {
		return none, why
	}
	return res, err
}
