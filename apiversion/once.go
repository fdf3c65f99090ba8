package apiversion

import (
	"context"

	"connectrpc.com/connect"
)

// Once wraps an interceptor so that it runs once for each client call, however many handlers the
// call passes. Authorization needs that, for example.
//
// Pass the same value to NewHandler (Options.Handler) and to the handlers that it calls. The
// interceptor then runs at the procedure that the client called. It does not run again for the
// inner requests: the translated request, the read before an update, or several requests. A handler
// that a client calls directly also runs it, so no call bypasses it.
//
// Every handler must get the same returned value. Two calls of Once make two independent
// interceptors.
func Once(i connect.Interceptor) connect.Interceptor { return &once{i} }

// once marks the context with itself as key. Two values of Once therefore do not disable each
// other.
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
