package secrets_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api are clients of one stack.
type api struct {
	v1 secretsv1connect.SecretServiceClient
	v2 secretsv2connect.SecretServiceClient
}

func serve(t testing.TB, h http.Handler, opts ...connect.ClientOption) api {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return api{secretsv1connect.NewSecretServiceClient(srv.Client(), srv.URL, opts...), secretsv2connect.NewSecretServiceClient(srv.Client(), srv.URL, opts...)}
}

// docOf is the document of a secret.
func docOf(t testing.TB, s *sampletest.Store, name string) bson.Raw {
	t.Helper()
	rec, err := s.Get(context.Background(), secrets.Kind, name)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Doc
}

func secretV1() *secretsv1.Secret {
	return &secretsv1.Secret{
		Payload: []byte{0, 1, 255}, ExpiresAt: 1800000000, Owner: "payments/ada",
		Labels: map[string]string{"env": "prod", "tier": ""}, Replaces: "projects/p/secrets/before",
	}
}

func createV1(t testing.TB, a api, id string, s *secretsv1.Secret) *secretsv1.Secret {
	t.Helper()
	res, err := a.v1.CreateSecret(context.Background(), connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: id, Secret: s}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

func getV1(t testing.TB, a api, name string) *secretsv1.Secret {
	t.Helper()
	res, err := a.v1.GetSecret(context.Background(), connect.NewRequest(&secretsv1.GetSecretRequest{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

func createV2(t testing.TB, a api, region, id string, s *secretsv2.Secret) *secretsv2.Secret {
	t.Helper()
	res, err := a.v2.CreateSecret(context.Background(), connect.NewRequest(&secretsv2.CreateSecretRequest{Parent: "projects/p/regions/" + region, SecretId: id, Secret: s}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

func getV2(t testing.TB, a api, name string) *secretsv2.Secret {
	t.Helper()
	res, err := a.v2.GetSecret(context.Background(), connect.NewRequest(&secretsv2.GetSecretRequest{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSecret()
}

// fieldsOf are a document's fields but those named, in the order of their names.
func fieldsOf(t testing.TB, doc bson.Raw, but ...string) string {
	t.Helper()
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	d = slices.DeleteFunc(d, func(e bson.E) bool { return slices.Contains(but, e.Key) })
	slices.SortFunc(d, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return bson.Raw(raw).String()
}

// wantTold compares all that a client is told: the same over either version's data, and
// nothing of kinds, places and names that its API does not have.
func wantTold(t testing.TB, err error, text string) {
	t.Helper()
	if coded := new(connect.Error); !errors.As(err, &coded) || coded.Message() != text {
		t.Errorf("told %v, want %q", err, text)
	}
}
