package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/refusal"
)

// audited serves a world as a controller does, to a caller who may do everything.
func audited(t *testing.T, w deploymenttest.World) (*httptest.Server, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	service := api.New(w.Coord, w.Store, api.Config{Upgrades: upgrades{}})
	_, handler := api.NewHandler(service, connect.WithInterceptors(access.NewInterceptor(access.Calls, access.NewAudit(zap.New(core)))))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := access.Caller{Identity: access.Loopback, Roles: []access.Role{access.Operator, access.Application}}
		handler.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, logs
}

// TestAuditSaysWhatTheCallerHears: the audit has the code, the text and the reason of each refusal
// that its caller got, of every call that changes something and in every protocol.
func TestAuditSaysWhatTheCallerHears(t *testing.T) {
	t.Parallel()
	server, logs := audited(t, deploymenttest.New(t))
	waive := &dbv1.WaiveParkedRequest{Kind: "things", Key: "k"}
	elsewhere := &dbv1.GetDeploymentRequest{Name: "services/none/deployments/x"} // the first field of every request
	waiveKind := &dbv1.WaiveKindRequest{Kind: "nothings"}
	protocols := map[string]connect.ClientOption{"connect": connect.WithClientOptions(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb()}
	for protocol, option := range protocols {
		t.Run(protocol, func(t *testing.T) {
			reasons := 0
			service := dbv1.File_dbcontroller_v1_deployment_proto.Services().ByName("DeploymentService")
			for i := range service.Methods().Len() {
				method := service.Methods().Get(i)
				procedure := fmt.Sprintf("/%s/%s", service.FullName(), method.Name())
				if !access.Calls[procedure].Changes {
					continue
				}
				if field := method.Input().Fields().ByNumber(1); field.Name() != "name" {
					t.Fatalf("the first field of %s is %s", method.Input().Name(), field.Name())
				}
				asks := []proto.Message{elsewhere}
				switch method.Name() {
				case "WaiveParked":
					asks = append(asks, waive, &dbv1.WaiveParkedRequest{Kind: "things"})
				case "WaiveKind":
					asks = append(asks, waiveKind)
				case "Switch", "AbortUpgrade", "BeginUpgrade", "Verify":
					asks = append(asks, &emptypb.Empty{}) // nothing runs, and no target is named
				}
				for _, ask := range asks {
					logs.TakeAll()
					err := refusedCall(t.Context(), server, procedure, method.IsStreamingServer(), ask, option)
					entries := logs.TakeAll()
					if err == nil || len(entries) != 1 {
						t.Errorf("%s(%v): %v, and %d lines in the audit", method.Name(), ask, err, len(entries))
						continue
					}
					reason, _ := refusal.Of(err)
					if reason != "" {
						reasons++
					}
					heard := fmt.Sprint(connect.CodeOf(err), " ", err, " ", reason)
					f := entries[0].ContextMap()
					if f["reason"] == nil {
						f["reason"] = ""
					}
					if told := fmt.Sprint(f["answer"], " ", f["message"], " ", f["reason"]); told != heard || strings.HasPrefix(told, "unknown") {
						t.Errorf("%s(%v): the audit says\n     %s\nand the caller heard\n     %s", method.Name(), ask, told, heard)
					}
				}
			}
			if reasons < 2 {
				t.Errorf("%d of these refusals have a reason: the test no longer tells of them", reasons)
			}
		})
	}
}

// TestRegistrationsAreAudited: a registration is in the audit, with whatever client_id it comes; its
// renewals are not.
func TestRegistrationsAreAudited(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	core, logs := observer.New(zap.InfoLevel)
	service := api.New(w.Coord, w.Store, api.Config{Upgrades: upgrades{}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	_, handler := api.NewHandler(service, connect.WithInterceptors(access.NewInterceptor(access.Calls, access.NewAudit(zap.New(core)))))
	for _, tc := range []struct {
		who, client string
		ttl         int32
		lines       int
	}{
		{"token:a", "client-a-1", 60_000, 1}, {"token:a", "client-a-1", 60_000, 0}, {"token:a", "client-a-1", 60_000, 0},
		{"token:a", "client-a-2", 60_000, 1}, {"token:b", "client-a-2", 60_000, 1}, {"token:b", "client-a-2", 60_000, 0},
		{"token:b", "client-a-2", 30_000, 1}, {"token:b", "no client", 60_000, 1},
	} {
		body, err := proto.Marshal(&dbv1.RegisterClientRequest{ClientId: tc.client, TtlMs: tc.ttl})
		if err != nil {
			t.Fatal(err)
		}
		caller := access.Caller{Identity: access.Identity{Name: tc.who, Proof: "token"}, Roles: []access.Role{access.Application}}
		var res *httptest.ResponseRecorder
		for end := time.Now().Add(time.Minute); ; { // until it runs
			logs.TakeAll()
			r := httptest.NewRequest(http.MethodPost, "/dbcontroller.v1.DeploymentService/RegisterClient", bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/proto")
			res = httptest.NewRecorder()
			handler.ServeHTTP(res, r.WithContext(access.WithCaller(r.Context(), caller)))
			if res.Code != http.StatusServiceUnavailable || time.Now().After(end) {
				break
			}
			runtime.Gosched()
		}
		if n := logs.Len(); n != tc.lines {
			t.Errorf("%s registers %s for %d ms (%d): %d lines in the audit, want %d", tc.who, tc.client, tc.ttl, res.Code, n, tc.lines)
		}
	}
}

// refusedCall makes a call that is known by its name alone.
func refusedCall(ctx context.Context, server *httptest.Server, procedure string, stream bool, ask proto.Message, option connect.ClientOption) error {
	raw, err := proto.Marshal(ask)
	if err != nil {
		return err
	}
	req := &emptypb.Empty{}
	req.ProtoReflect().SetUnknown(raw)
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure, option)
	if !stream {
		_, err := client.CallUnary(ctx, connect.NewRequest(req))
		return err
	}
	answers, err := client.CallServerStream(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	for answers.Receive() {
		continue
	}
	if err := answers.Close(); err != nil {
		return err
	}
	return answers.Err()
}

// TestAuditOfLongArguments: an argument that is refused for its form does not flood the audit.
func TestAuditOfLongArguments(t *testing.T) {
	t.Parallel()
	server, logs := audited(t, deploymenttest.New(t))
	long := strings.Repeat("\u202e", 80_000) // each takes six bytes when it is quoted
	for procedure, ask := range map[string]proto.Message{
		"RegisterClient":   &dbv1.RegisterClientRequest{ClientId: long},
		"DeregisterClient": &dbv1.DeregisterClientRequest{ClientId: long},
		"AckHold":          &dbv1.AckHoldRequest{ClientId: long},
	} {
		logs.TakeAll()
		err := refusedCall(t.Context(), server, "/dbcontroller.v1.DeploymentService/"+procedure, false, ask, connect.WithClientOptions())
		entries := logs.TakeAll()
		if err == nil || len(entries) != 1 {
			t.Errorf("%s: %v, and %d lines in the audit", procedure, err, len(entries))
			continue
		}
		line, encodeErr := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()).EncodeEntry(entries[0].Entry, entries[0].Context)
		if encodeErr != nil || line.Len() > 2<<10 || len(err.Error()) > 2<<10 {
			t.Errorf("%s: %d bytes in the audit, %d to the caller: %v", procedure, line.Len(), len(err.Error()), encodeErr)
		}
	}
}
