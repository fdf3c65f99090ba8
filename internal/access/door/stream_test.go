package door_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
)

type (
	bytesValue   = wrapperspb.BytesValue
	clientStream = connect.ClientStream[bytesValue]
)

// streams are the protocols in which a client can send one message after another.
var streams = map[string][]connect.ClientOption{
	"connect":       nil,
	"connect gzip":  {connect.WithSendGzip()},
	"grpc":          {connect.WithGRPC()},
	"grpc gzip":     {connect.WithGRPC(), connect.WithSendGzip()},
	"grpc-web":      {connect.WithGRPCWeb()},
	"grpc-web gzip": {connect.WithGRPCWeb(), connect.WithSendGzip()},
}

// streaming serves client streams, and returns a client of them.
func streaming(t *testing.T, cfg door.Config, opts []connect.ClientOption, handle func(context.Context, *clientStream) error) *connect.Client[bytesValue, emptypb.Empty] {
	t.Helper()
	h := connect.NewClientStreamHandler("/x", func(ctx context.Context, s *clientStream) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), handle(ctx, s)
	}, connect.WithReadMaxBytes(int(cfg.BodyBytes)))
	cfg.Unencrypted2 = true
	d := open(t, cfg, h.ServeHTTP)
	only2 := new(http.Protocols)
	only2.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: only2}
	t.Cleanup(transport.CloseIdleConnections)
	return connect.NewClient[bytesValue, emptypb.Empty](&http.Client{Transport: transport}, "http://"+d.Addr()+"/x", opts...)
}

// random is data that gzip makes no smaller.
func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// TestLongStreams: a stream may be many times as long as a request, and as all memory of requests. Each
// of its messages counts while a handler has it, as sent and decompressed, and the whole stream never
// counts more than its largest messages.
func TestLongStreams(t *testing.T) {
	t.Parallel()
	const (
		body, size, messages = 64 << 10, 60 << 10, 30
		most                 = (limits.BodyCopies + 1) * 2 * body // of a stream, its messages as sent and decompressed
		budget               = most * 4 / 3
	)
	for name, opts := range streams {
		for what, msg := range map[string][]byte{"random": random(size), "zeros": make([]byte, size)} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				var took atomic.Int64
				client := streaming(t, door.Config{BodyBytes: body, BodiesBytes: budget}, opts, func(ctx context.Context, s *clientStream) error {
					share := memory.Of(ctx)
					for s.Receive() {
						took.Add(1)
						if !bytes.Equal(s.Msg().GetValue(), msg) {
							return errors.New("it got another message")
						}
						if share.Take(budget - limits.BodyCopies*size + 1) {
							return errors.New("the message is not counted")
						}
						if !share.Take(budget - most) {
							return errors.New("the stream counts more than its largest messages")
						}
						share.Take(most - budget)
					}
					return s.Err()
				})
				s := client.CallClientStream(t.Context())
				for range messages {
					if err := s.Send(&bytesValue{Value: msg}); err != nil {
						break // the answer has the reason
					}
				}
				if _, err := s.CloseAndReceive(); err != nil || took.Load() != messages {
					t.Errorf("after %d of %d messages: %v", took.Load(), messages, err)
				}
			})
		}
	}
}

// TestHostileStreams: streams that become large with their second message hold no more memory together
// than requests may. What has no room is refused, for now or for ever, and so is a message that is
// larger than a request may be.
func TestHostileStreams(t *testing.T) {
	t.Parallel()
	const body, size, atOnce = 64 << 10, 60 << 10, 8
	for name, opts := range streams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			var held, ended atomic.Int64
			client := streaming(t, door.Config{BodyBytes: body, BodiesBytes: limits.BodyCopies * 2 * body}, opts, func(_ context.Context, s *clientStream) error {
				for range 2 {
					if !s.Receive() {
						return s.Err()
					}
				}
				held.Add(1)
				<-hold
				for s.Receive() { // to its end
				}
				return s.Err()
			})
			send := func(sizes ...int) error {
				s := client.CallClientStream(t.Context())
				for _, n := range sizes {
					if err := s.Send(&bytesValue{Value: make([]byte, n)}); err != nil {
						break // the answer has the reason
					}
				}
				_, err := s.CloseAndReceive()
				return err
			}
			var wg sync.WaitGroup
			for range atOnce {
				wg.Go(func() {
					defer ended.Add(1)
					if err := send(10, size); err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
						t.Errorf("it fails with %v, want that there is no room", err)
					}
				})
			}
			until(t, "every stream is held or refused", func() bool { return held.Load()+ended.Load() == atOnce })
			if n := held.Load(); n > 2 {
				t.Errorf("%d streams are held, want two at most", n)
			}
			close(hold)
			wg.Wait()
			if err := send(10, size, 10, size, size); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			if err := send(10, 2*body); connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("a message that is too large: %v", err)
			}
		})
		t.Run(name+" without room for ever", func(t *testing.T) {
			t.Parallel()
			client := streaming(t, door.Config{BodyBytes: body, BodiesBytes: body}, opts, func(_ context.Context, s *clientStream) error {
				for s.Receive() { // to its end
				}
				return s.Err()
			})
			s := client.CallClientStream(t.Context())
			_ = s.Send(&bytesValue{Value: make([]byte, size)}) // the answer has the reason
			if _, err := s.CloseAndReceive(); connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("%v", err)
			}
		})
	}
}
