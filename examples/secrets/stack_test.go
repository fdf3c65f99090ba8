package secrets_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
)

// TestUsage: calls are counted by version, method and caller, translated ones once.
func TestUsage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	usage := apiversion.NewUsage(apiversion.UsageConfig{
		Services: secrets.Services(), Caller: func(r *http.Request) string { return r.Header.Get("Caller") },
	})
	a := serve(t, usage.Handler(secrets.StackV2(sampletest.New(t, secrets.Kind))))
	for caller, calls := range map[string]int{"billing": 2, "web": 1} {
		for range calls {
			req := connect.NewRequest(&secretsv1.ListSecretsRequest{})
			req.Header().Set("Caller", caller)
			if _, err := a.v1.ListSecrets(ctx, req); err != nil {
				t.Fatal(err)
			}
		}
	}
	req := connect.NewRequest(&secretsv2.GetSecretRequest{Name: v2Name("nonesuch")})
	req.Header().Set("Caller", "web")
	_, err := a.v2.GetSecret(ctx, req)
	sampletest.WantError(t, err, connect.CodeNotFound)
	type line struct {
		version, method, caller string
		calls                   uint64
	}
	got := map[line]bool{}
	for _, c := range usage.Snapshot() {
		got[line{c.Version, c.Method, c.Caller, c.Calls}] = true
	}
	for _, want := range []line{
		{"v1", "secrets.v1.SecretService/ListSecrets", "billing", 2},
		{"v1", "secrets.v1.SecretService/ListSecrets", "web", 1},
		{"v2", "secrets.v2.SecretService/GetSecret", "web", 1},
	} {
		if !got[want] {
			t.Errorf("%v is not in %v", want, got)
		}
	}
	if len(got) != 3 {
		t.Errorf("counted %v", got)
	}
}

// TestEveryProtocol: reads by GET, gRPC and JSON reach the translated API as well.
func TestEveryProtocol(t *testing.T) {
	t.Parallel()
	s := sampletest.New(t, secrets.Kind)
	made := createV1(t, serve(t, secrets.StackV2(s)), "s", secretV1())
	for name, option := range map[string]connect.ClientOption{"get": connect.WithHTTPGet(), "json": connect.WithProtoJSON(), "grpc-web": connect.WithGRPCWeb()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := serve(t, secrets.StackV2(s), option)
			if got := getV1(t, a, made.GetName()); got.GetOwner() != "payments/ada" {
				t.Errorf("read %v", got)
			}
		})
	}
}

func TestIsWrite(t *testing.T) {
	t.Parallel()
	for procedure, want := range map[string]bool{
		"/secrets.v1.SecretService/GetSecret": false, "/secrets.v1.SecretService/ListOwners": false, "/secrets.v1.SecretService/WatchSecrets": false,
		"/secrets.v1.SecretService/SetPayload": true, "/secrets.v2.SecretService/ListSecrets": false, "/secrets.v2.SecretService/RotateSecret": true,
		"/secrets.v2.SecretService/Nonesuch": true, "": true,
	} {
		if secrets.IsWrite(procedure) != want {
			t.Errorf("IsWrite(%q) is %t", procedure, !want)
		}
	}
}
