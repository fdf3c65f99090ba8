package docs_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev"
	"dbcontroller.dev/dbcontrollertest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/vrunner"
)

// rekeyed is a service whose names gain a region in v2.
var rekeyed = dbcontroller.Service{
	Name: "secrets",
	Versions: []dbcontroller.Version{
		{Name: "v1", APIs: secrets.Services()[:1], Mount: mountSecretsV1},
		{Name: "v2", APIs: secrets.Services()[1:], Mount: mountSecretsV2, Transformers: secrets.Specs(), Adapt: adapt.Config{
			// Each record of v2 leads to the one of v1 whose name the lens makes of its name.
			Leads: map[string]string{secrets.Kind: secrets.Kind},
			Names: map[string]transform.Mapping{secrets.Kind: secrets.Lens().UpMapping()},
		}},
	},
}

func mountSecretsV1(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
	mux.Handle(secrets.NativeV1(data, opts...))
}

func mountSecretsV2(mux *http.ServeMux, data dbcontroller.Store, opts ...connect.HandlerOption) {
	mux.Handle(secrets.NativeV2(data, opts...))
}

// TestRekeyed: what the guide shows of names that differ serves both versions over v2's data.
func TestRekeyed(t *testing.T) {
	t.Parallel()
	data := dbcontrollertest.NewStore(t, secrets.Kind)
	s := httptest.NewServer(rekeyed.Handler("v2", map[string]vrunner.Store{"v2": data}))
	defer s.Close()
	old := secretsv1connect.NewSecretServiceClient(s.Client(), s.URL)
	_, err := old.CreateSecret(t.Context(), connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: "x", Secret: &secretsv1.Secret{Owner: "payments/ada"}}))
	if err != nil {
		t.Fatal(err)
	}
	list, err := old.ListSecrets(t.Context(), connect.NewRequest(&secretsv1.ListSecretsRequest{Parent: "projects/p"}))
	if err != nil || len(list.Msg.Secrets) != 1 || list.Msg.Secrets[0].Name != "projects/p/secrets/x" {
		t.Errorf("v1 lists %v, %v", list, err)
	}
	got, err := secretsv2connect.NewSecretServiceClient(s.Client(), s.URL).GetSecret(t.Context(), connect.NewRequest(&secretsv2.GetSecretRequest{Name: "projects/p/regions/us-west2/secrets/x"}))
	if err != nil || got.Msg.GetSecret().GetOwnerTeam() != "payments" {
		t.Errorf("v2 has %v, %v", got, err)
	}
}
