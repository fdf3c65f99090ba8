package door_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/limits"
)

// TestBombs: in every protocol and encoding, what a request becomes in memory counts against the
// budget of bodies before it is there. The requests that fit in are answered, all others refused.
//
//nolint:paralleltest // it measures the memory of the process
func TestBombs(t *testing.T) {
	const (
		procedure = "/x"
		body      = 2 << 20                      // as much as a request may have
		budget    = limits.BodyCopies * 2 * body // two of them
		large     = body - 1<<10
		inURL     = 20 << 10 // about 27 KiB in base64
		requests  = 8
	)
	both := new(http.Protocols)
	both.SetUnencryptedHTTP2(true)
	post := func(opts ...connect.ClientOption) []connect.ClientOption { return opts }
	for _, tc := range []struct {
		name   string
		opts   []connect.ClientOption
		url    string // of GET; empty: POST
		bytes  int
		budget int64
	}{
		{"connect get gzip", nil, "encoding=proto&compression=gzip&base64=1&message=" + url(small(t, large)), large, budget},
		{"connect get gzip in another spelling", nil, "encoding=proto&%63ompression=gzip&base64=1&%6dessage=" + url(small(t, large)), large, budget},
		{"connect get identity", nil, "encoding=proto&base64=1&message=" + url(encoded(t, inURL)), inURL, limits.BodyCopies * 64 << 10},
		{"connect post gzip", post(connect.WithSendGzip()), "", large, budget},
		{"connect post identity", nil, "", large, budget},
		{"grpc gzip", post(connect.WithGRPC(), connect.WithSendGzip()), "", large, budget},
		{"grpc identity", post(connect.WithGRPC()), "", large, budget},
		{"grpc-web gzip", post(connect.WithGRPCWeb(), connect.WithSendGzip()), "", large, budget},
		{"grpc-web identity", post(connect.WithGRPCWeb()), "", large, budget},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var taken, ended atomic.Int64
			hold := make(chan struct{})
			h := connect.NewUnaryHandler(procedure, func(_ context.Context, req *connect.Request[wrapperspb.BytesValue]) (*connect.Response[emptypb.Empty], error) {
				taken.Add(1)
				<-hold
				runtime.KeepAlive(req.Msg)
				return connect.NewResponse(&emptypb.Empty{}), nil
			}, connect.WithReadMaxBytes(body), connect.WithIdempotency(connect.IdempotencyNoSideEffects))
			d := open(t, door.Config{BodyBytes: body, BodiesBytes: tc.budget, Requests: limits.ServerRequests, Unencrypted2: true}, h.ServeHTTP)
			transport := &http.Transport{Protocols: both}
			defer transport.CloseIdleConnections()
			browser := &http.Client{Transport: transport}
			client := connect.NewClient[wrapperspb.BytesValue, emptypb.Empty](browser, "http://"+d.Addr()+procedure, tc.opts...)
			msg := &wrapperspb.BytesValue{Value: make([]byte, tc.bytes)}
			call := func() bool {
				if tc.url == "" {
					_, err := client.CallUnary(t.Context(), connect.NewRequest(msg))
					if err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
						t.Errorf("it fails as %s, want that there is no room", connect.CodeOf(err))
					}
					return err == nil
				}
				res, err := browser.Get("http://" + d.Addr() + procedure + "?connect=v1&" + tc.url)
				if err != nil {
					t.Errorf("%.100v", err)
					return false
				}
				if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("it fails as %d, want that there is no room", res.StatusCode)
				}
				return res.Body.Close() == nil && res.StatusCode == http.StatusOK
			}
			before := heap()
			var wg sync.WaitGroup
			for range requests {
				wg.Go(func() {
					call()
					ended.Add(1)
				})
			}
			until(t, "every request is taken or refused", func() bool { return taken.Load()+ended.Load() == requests })
			n, held := taken.Load(), int64(heap())-int64(before)
			close(hold)
			wg.Wait()
			// None, where all came so much at once that each found the room taken by those that are
			// refused a moment later.
			if n > 2 {
				t.Errorf("%d requests are held at the same time, want two at most", n)
			}
			// The budget counts each form of a body, so no factor is left.
			most := tc.budget + 4<<20
			if tc.url == "" {
				most += requests * int64(tc.bytes) // of those who ask
			}
			if held > most {
				t.Errorf("%d MiB are in memory for a budget of %d MiB", held>>20, tc.budget>>20)
			}
			if !call() {
				t.Error("afterwards there is no room")
			}
		})
	}
}

// heap is what is in use after a collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// encoded is a message of about n bytes.
func encoded(t *testing.T, n int) []byte {
	t.Helper()
	b, err := proto.Marshal(&wrapperspb.BytesValue{Value: make([]byte, n)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// small is encoded, compressed.
func small(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(encoded(t, n)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
