package inprocess_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestRequestsAreCounted: a request that a handler makes for its client is encoded and decoded once
// more. It counts meanwhile as the client's own does. Of a stream, the message alone counts while the
// handler runs. Without room the handler is not called, and its client hears why.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	const size = 10_000
	var seen int64
	budget := memory.NewBudget(1 << 20)
	see := func() { seen = 1<<20 - budget.Left() }
	unary := connect.NewUnaryHandler("/s/m", func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		see()
		return connect.NewResponse(wrapperspb.String("")), nil
	})
	stream := connect.NewServerStreamHandler("/s/m", func(context.Context, *connect.Request[text], *connect.ServerStream[text]) error {
		see()
		return nil
	})
	message := wrapperspb.String(strings.Repeat("x", size))
	for name, tc := range map[string]struct {
		call func(ctx context.Context) error
		want int64 // BodyCopies before it is decoded, and then one
	}{
		"connect": {func(ctx context.Context) error {
			_, err := connect.NewClient[text, text](inprocess.Client(unary), "http://nowhere/s/m").CallUnary(ctx, connect.NewRequest(message))
			return err
		}, limits.BodyCopies},
		"grpc": {func(ctx context.Context) error {
			_, err := connect.NewClient[text, text](inprocess.Client(unary), "http://nowhere/s/m", connect.WithGRPC()).CallUnary(ctx, connect.NewRequest(message))
			return err
		}, 1},
		"stream": {func(ctx context.Context) error {
			s, err := connect.NewClient[text, text](inprocess.Client(stream), "http://nowhere/s/m").CallServerStream(ctx, connect.NewRequest(message))
			if err != nil {
				return err
			}
			s.Receive()
			return errors.Join(s.Err(), s.Close())
		}, 1},
	} {
		share := budget.Share(1 << 20)
		share.Take(1000) // of the client's own
		if err := tc.call(memory.With(t.Context(), share)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if least := 1000 + tc.want*size; seen < least || seen > least+100 {
			t.Errorf("%s: its handler saw %d bytes taken, want %d", name, seen, least)
		}
		if left := budget.Left(); left != 1<<20-1000 {
			t.Errorf("%s: %d bytes are taken after it", name, 1<<20-left)
		}
		// Enough for the message, and not for what it is decoded in.
		for _, of := range []struct {
			share *memory.Share
			want  connect.Code
		}{{budget.Share(limits.BodyCopies * size), connect.CodeResourceExhausted}, {budget.Share(1 << 20), connect.CodeUnavailable}} {
			other := budget.Share(1 << 20)
			if of.want == connect.CodeUnavailable {
				other.Take(budget.Left() - limits.BodyCopies*size)
			}
			seen = 0
			err := tc.call(memory.With(t.Context(), of.share))
			if reason, _ := refusal.Of(err); connect.CodeOf(err) != of.want || seen != 0 || (reason == refusal.Busy) != (of.want == connect.CodeUnavailable) {
				t.Errorf("%s without room: %v, want %s; its handler saw %d", name, err, of.want, seen)
			}
			of.share.End()
			other.End()
		}
		share.End()
	}
}
