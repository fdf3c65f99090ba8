package refusal_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/refusal"
)

const everyCall = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s",
	"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// trailersOnly has an answer be one frame, as proxies and servers of other languages send it: that is
// what clients may retry.
func trailersOnly(header http.Header) {
	for name, values := range header {
		if trailer, is := strings.CutPrefix(name, http.TrailerPrefix); is {
			header.Del(name)
			header[trailer] = values
		}
	}
}

// TestUnknownIsNotRetried: a client of gRPC that repeats whatever is UNAVAILABLE does not repeat a
// write whose outcome is not known. What had no effect it does repeat.
func TestUnknownIsNotRetried(t *testing.T) {
	t.Parallel()
	for reason, attempts := range map[refusal.Reason]int64{refusal.OutcomeUnknown: 1, refusal.Held: 4} {
		var calls atomic.Int64
		handler := connect.NewUnaryHandler("/s.v1.S/M", func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			calls.Add(1)
			return nil, refusal.New(reason, errors.New("refused"))
		})
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			record := httptest.NewRecorder()
			handler.ServeHTTP(record, r)
			for name, values := range record.Header() {
				w.Header()[name] = values
			}
			trailersOnly(w.Header())
		}))
		s.Config.Protocols = &protocols
		s.Start()
		defer s.Close()
		c, err := grpc.NewClient(s.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(everyCall))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // of a test
		if err := c.Invoke(t.Context(), "/s.v1.S/M", &emptypb.Empty{}, &emptypb.Empty{}); err == nil || calls.Load() != attempts {
			t.Errorf("%s: %d calls, want %d; the last one is answered with %v", reason, calls.Load(), attempts, err)
		}
	}
}
