package vrunner_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// TestNoRoomForABody: whose body finds no room next to those of others reads the same, of a server
// that switches and of a handler as a controller has it, which Connect itself reads bodies for.
func TestNoRoomForABody(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var only2 http.Protocols
	only2.SetUnencryptedHTTP2(true)
	want := refused{code: connect.CodeUnavailable, reason: string(refusal.Busy), domain: "dbcontroller.dev"}
	for name, handler := range map[string]func(context.Context, *testing.T) http.Handler{
		"server": func(ctx context.Context, t *testing.T) http.Handler {
			w := newWorld(ctx, t, plain)
			return w.serves(ctx, w.clients(), vrunner.Config{}, writes("a"))
		},
		"controller": func(context.Context, *testing.T) http.Handler {
			return connect.NewUnaryHandler(refusedCall, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
				return connect.NewResponse(&emptypb.Empty{}), nil
			})
		},
	} {
		for protocol, ask := range map[string]func(context.Context, string) (refused, error){
			"HTTP":         overHTTP,
			"connect json": overConnect(nil, connect.WithProtoJSON()),
			"grpc":         overConnect(&only2, connect.WithGRPC()),
		} {
			t.Run(name+" over "+protocol, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				r := refusing{door: door.Config{BodiesBytes: 1}, handler: handler(ctx, t)}
				if got, err := ask(ctx, r.open(ctx, t)+refusedCall); err != nil || got != want {
					t.Errorf("%+v, %v, want %+v", got, err, want)
				}
			})
		}
	}
}
