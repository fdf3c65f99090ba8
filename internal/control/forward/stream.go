package forward

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/appclient/client"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/refusal"
)

// stopping ends forwarded streams when this controller stops. Their callers go to another one.
func stopping() error {
	return refusal.New(refusal.Stopping, errors.New("this controller is stopping: retry"))
}

// errMoved ends a stream because other controllers run the deployment now.
var errMoved = errors.New("other controllers run the deployment")

// until returns a context that also ends when the controller stops, or when the owner of a deployment is not
// was any more.
func (h *Handler) until(ctx context.Context, name string, was *place) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for {
			p, changed := h.owner(name)
			if p != was {
				cancel(errMoved)
				return
			}
			select {
			case <-changed:
			case <-h.stopping:
				cancel(stopping())
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// untilStopped returns a context that also ends when the controller stops.
func (h *Handler) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-h.stopping:
			cancel(stopping())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// admit counts a forwarded stream. Some places are for operators, so that dashboards cannot lock them out.
func (h *Handler) admit(ctx context.Context) (leave func(), err error) {
	most := int64(limits.Watches)
	if c, ok := access.CallerOf(ctx); ok && !c.May(access.Operator) {
		most -= limits.Watches / limits.OperatorShare
	}
	if h.watches.Add(1) > most {
		h.watches.Add(-1)
		return nil, &api.FullError{What: "forwarded streams at this controller", Most: int(most), Do: "ask a controller that runs the deployment"}
	}
	return func() { h.watches.Add(-1) }, nil
}

// stream forwards a call with several answers, or answers it here.
func stream[Q, M any, N named[Q]](ctx context.Context, h *Handler, req *connect.Request[Q], to *connect.ServerStream[M], what effect,
	here func(server, context.Context, *connect.Request[Q], *connect.ServerStream[M]) error,
	there func(remote, context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[M], error),
) error {
	c := h.callerOf(ctx, req.Header())
	p, err := h.find(ctx, c, N(req.Msg).GetName())
	if err != nil {
		return err
	}
	answer := func() (struct{}, error) { return struct{}{}, here(h.local, ctx, req, to) }
	if p == nil {
		_, err := answer()
		return h.misdirected(c, N(req.Msg).GetName(), err)
	}
	leave, err := h.admit(ctx)
	if err != nil {
		return err
	}
	defer leave()
	at, err := p.peersFor(c)
	if err != nil {
		_, err = instead(h, p, err, answer)
		return err
	}
	repeatable := what == reads
	running, cancel := h.untilStopped(ctx)
	defer cancel()
	while := finishing
	if repeatable {
		while = 0
	}
	sending, end := h.whileLive(running, p, while)
	defer end()
	sent, err := relay(sending, at, c, req.Msg, repeatable, to.Send, there)
	if err == nil {
		return nil
	}
	err = because(sending, err)
	refused := p.relayed(running, at, err, repeatable)
	if running.Err() == nil && !sent && p.region == "" && elsewhere(err, repeatable) {
		_, err = instead(h, p, refused, answer)
		return err
	}
	return refused
}

// relay sends each message of a remote stream on. sent reports whether there was one.
func relay[Q, M any](ctx context.Context, at *peers, c caller, msg *Q, repeatable bool, send func(*M) error,
	there func(remote, context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[M], error),
) (sent bool, err error) {
	if repeatable {
		ctx = client.Repeatable(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	from, err := there(at, ctx, request(c, msg))
	if err != nil {
		cancel()
		return false, err
	}
	defer func() {
		cancel()         // or Close reads on what is left of the stream
		_ = from.Close() // its error is that of Receive
	}()
	for from.Receive() {
		// The message is kept no longer than its sending.
		if err := send(from.Msg()); err != nil {
			return true, err
		}
		sent = true
	}
	return sent, from.Err()
}

// retryWatch is the longest wait before a broken watch begins again.
const retryWatch = 2 * time.Second

// WatchDeployment implements the API. The watch goes on when a controller dies: with the next one that
// runs the deployment, or here while there is none.
func (h *Handler) WatchDeployment(ctx context.Context, req *connect.Request[pb.WatchDeploymentRequest], to *connect.ServerStream[pb.Deployment]) error {
	c := h.callerOf(ctx, req.Header())
	if c.forwarded || h.local.Runs(req.Msg.Name) {
		return h.local.WatchDeployment(ctx, req, to)
	}
	leave, err := h.admit(ctx)
	if err != nil {
		return err
	}
	defer leave()
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(retryWatch), backoff.WithMaxElapsedTime(0))
	away := false // the announced controllers could not be reached
	for {
		was, _ := h.owner(req.Msg.Name) // read before find, so that no change is missed
		p, err := h.find(ctx, c, req.Msg.Name)
		if err != nil {
			return err
		}
		switch {
		case p == nil || away && p.region == "":
			err = h.watchHere(ctx, was, req, to)
			away = false
		default:
			var sent bool
			sent, err = h.watchThere(ctx, was, p, c, req, to)
			away = !sent
			if sent {
				wait.Reset()
			}
		}
		switch {
		case errors.Is(err, errMoved):
			away = false
			continue
		case !errors.Is(err, errBroken):
			return err
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-h.stopping:
			return stopping()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errBroken means that a watch may go on at another controller.
var errBroken = errors.New("the controller that was watched is gone")

// watchHere watches in this process until other controllers may run the deployment. Its error is errMoved
// then.
func (h *Handler) watchHere(ctx context.Context, was *place, req *connect.Request[pb.WatchDeploymentRequest], to *connect.ServerStream[pb.Deployment]) error {
	watching, cancel := h.until(ctx, req.Msg.Name, was)
	defer cancel()
	err := h.local.WatchDeployment(watching, req, to)
	if cause := context.Cause(watching); watching.Err() != nil && ctx.Err() == nil {
		return cause
	}
	return err
}

// watchThere relays the watch of another controller. sent reports whether there was a message. The error
// is errMoved or errBroken if the watch can go on.
func (h *Handler) watchThere(ctx context.Context, was, p *place, c caller, req *connect.Request[pb.WatchDeploymentRequest], to *connect.ServerStream[pb.Deployment]) (sent bool, err error) {
	at, err := p.peersFor(c)
	if err != nil {
		if p.region == "" {
			return false, errBroken
		}
		return false, err
	}
	watching, cancel := h.until(ctx, req.Msg.Name, was)
	defer cancel()
	var lost error // of the caller's connection
	sent, err = relay(watching, at, c, req.Msg, true, func(d *pb.Deployment) error {
		d.Region = p.region
		lost = to.Send(d)
		return lost
	}, remote.WatchDeployment)
	switch {
	case lost != nil:
		return sent, lost
	case ctx.Err() != nil:
		return sent, context.Cause(ctx)
	case watching.Err() != nil:
		return sent, context.Cause(watching)
	case err == nil:
		return sent, errBroken // a watch has no end
	case p.region == "" && elsewhere(err, true):
		return sent, errBroken
	case outcomeOf(err) == answered && !passing(err):
		if connect.CodeOf(err) == connect.CodeNotFound {
			h.forget(req.Msg.Name)
		}
		return sent, p.refused(at, err)
	case sent || p.region == "":
		return sent, errBroken
	}
	return false, p.relayed(ctx, at, err, true)
}

// passing reports whether another controller may answer after an error.
func passing(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return true
	}
	return false
}
