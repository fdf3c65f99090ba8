package apiversion

import (
	"context"

	"connectrpc.com/connect"
)

// Once is an interceptor that runs once for each call of a client, however many handlers the
// call passes: authorisation, for one. Given to NewHandler (Options.Handler) and to the
// handlers that it calls, it runs in front of the first one, which is the procedure that the
// client has called, and not again in front of what this is translated to: the request, the
// read before an update, several requests. Where it was given to the inner handlers alone, it
// runs there: a call that it was never asked about gets nowhere.
//
// The handlers must be given the very same value, not each a Once of its own.
func Once(i connect.Interceptor) connect.Interceptor { return &once{i} }

// once is also the key of the mark that it has run, in the context.
type once struct{ connect.Interceptor }

func (o *once) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	run := o.Interceptor.WrapUnary(next)
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if ctx.Value(o) != nil {
			return next(ctx, req)
		}
		return run(context.WithValue(ctx, o, true), req)
	}
}

func (o *once) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	run := o.Interceptor.WrapStreamingHandler(next)
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if ctx.Value(o) != nil {
			return next(ctx, conn)
		}
		return run(context.WithValue(ctx, o, true), conn)
	}
}
