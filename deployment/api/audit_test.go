package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/access"
	"dbcontroller.dev/deployment/api"
	"dbcontroller.dev/deployment/deploymenttest"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
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
