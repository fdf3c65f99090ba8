package access

import (
	"context"
	"errors"

	"connectrpc.com/connect"
)

// Interceptor checks each procedure again, with the caller that a Guard has stored in the context.
// It also reports changing calls to the audit.
type Interceptor struct {
	table Table
	audit *Audit
}

var _ connect.Interceptor = Interceptor{}

// NewInterceptor returns an interceptor. audit may be nil.
func NewInterceptor(table Table, audit *Audit) Interceptor { return Interceptor{table, audit} }

var errUnguarded = connect.NewError(connect.CodeUnauthenticated, errors.New("no guard has asked who calls"))

// check returns the caller and the row of a procedure, or why the call is refused.
func (i Interceptor) check(ctx context.Context, procedure string) (Caller, Row, error) {
	caller, ok := CallerOf(ctx)
	if !ok {
		return caller, Row{}, errUnguarded
	}
	// Only exact paths count here: a prefix row must not admit an unlisted procedure.
	row, ok := i.table[procedure]
	if !ok {
		return caller, row, connect.NewError(connect.CodePermissionDenied, errors.New("no role may call "+callName(procedure)))
	}
	return caller, row, mayCall(caller, procedure, row)
}

func (i Interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		caller, row, err := i.check(ctx, req.Spec().Procedure)
		var res connect.AnyResponse
		var renewed bool
		if err == nil {
			res, err = next(context.WithValue(ctx, renewalKey{}, &renewed), req)
		}
		// The audit line comes before the answer.
		if row.Changes {
			i.audit.answered(caller, req.Spec().Procedure, req.Header(), req.Any(), renewed, err)
		}
		return res, err
	}
}

func (i Interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		caller, row, err := i.check(ctx, conn.Spec().Procedure)
		heard := &hearing{StreamingHandlerConn: conn}
		if err == nil {
			err = next(ctx, heard)
		}
		if row.Changes {
			i.audit.answered(caller, conn.Spec().Procedure, conn.RequestHeader(), heard.first, false, err)
		}
		return err
	}
}

func (Interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// hearing keeps the first message of a stream, its request, for the audit.
type hearing struct {
	connect.StreamingHandlerConn
	first any
}

func (h *hearing) Receive(m any) error {
	err := h.StreamingHandlerConn.Receive(m)
	if err == nil && h.first == nil {
		h.first = m
	}
	return err
}
