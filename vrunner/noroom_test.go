package vrunner_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// TestNoRoomForABody: whose body finds no room next to those of others reads the same, of a server
// that switches and of a handler as a controller has it, which Connect itself reads bodies for. So does
// one that never finds room, which is told that no other attempt helps.
func TestNoRoomForABody(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var only2 http.Protocols
	only2.SetUnencryptedHTTP2(true)
	const room, ofOthers = 1 << 10, "Of-Others"
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
				served, held, leave := handler(ctx, t), make(chan struct{}), make(chan struct{})
				r := refusing{door: door.Config{BodiesBytes: room}, handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if req.Header.Get(ofOthers) != "" {
						memory.Of(req.Context()).Take(room)
						close(held)
						<-leave
						return
					}
					served.ServeHTTP(w, req)
				})}
				url := r.open(ctx, t) + refusedCall
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(ofOthers, "yes")
				left := make(chan struct{})
				go func() {
					defer close(left)
					if res, err := http.DefaultClient.Do(req); err == nil {
						_ = res.Body.Close()
					}
				}()
				<-held
				want := refused{code: connect.CodeUnavailable, reason: string(refusal.Busy), domain: "dbcontroller.dev"}
				if got, err := ask(ctx, url); err != nil || got != want {
					t.Errorf("%+v, %v, want %+v", got, err, want)
				}
				close(leave)
				<-left
				never := refusing{door: door.Config{BodiesBytes: 1}, handler: served}
				if got, err := ask(ctx, never.open(ctx, t)+refusedCall); err != nil || got != (refused{code: connect.CodeResourceExhausted}) {
					t.Errorf("without room for ever: %+v, %v", got, err)
				}
			})
		}
	}
}
