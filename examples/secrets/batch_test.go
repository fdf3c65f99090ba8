package secrets_test

import (
	"slices"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/dbcontrollertest"
	"dbcontroller.dev/examples/sampletest"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
	"dbcontroller.dev/internal/program/server/samples"
)

// TestBatchGetOverTheSwitch: a batch of v1 is the same over the upgrade and the rollback, and v2 has
// one of its own.
func TestBatchGetOverTheSwitch(t *testing.T) {
	t.Parallel()
	s := dbcontrollertest.Start(t, samples.Service())
	a := api{secretsv1connect.NewSecretServiceClient(s.Client(), s.URL), secretsv2connect.NewSecretServiceClient(s.Client(), s.URL)}
	made := map[string]*secretsv1.Secret{}
	for _, id := range []string{"a", "b", "c"} {
		made[id] = createV1(t, a, id, secretV1())
	}
	for _, version := range []string{"v1", "v2", "v1"} {
		if s.Active() != version {
			s.Switch(version)
		}
		got, err := a.v1.BatchGetSecrets(t.Context(), connect.NewRequest(&secretsv1.BatchGetSecretsRequest{
			Parent: "projects/p", Names: []string{"projects/p/secrets/c", "projects/p/secrets/a"},
		}))
		if err != nil || !slices.EqualFunc(got.Msg.GetSecrets(), []*secretsv1.Secret{made["c"], made["a"]}, func(a, b *secretsv1.Secret) bool { return proto.Equal(a, b) }) {
			t.Errorf("v1 over %s: %v, %v", version, got, err)
		}
		_, err = a.v1.BatchGetSecrets(t.Context(), connect.NewRequest(&secretsv1.BatchGetSecretsRequest{Names: []string{"projects/p/secrets/c", "projects/p/secrets/z"}}))
		sampletest.WantError(t, err, connect.CodeNotFound, "projects/p/secrets/z")
		if version != "v2" {
			continue
		}
		batch, err := a.v2.BatchGetSecrets(t.Context(), connect.NewRequest(&secretsv2.BatchGetSecretsRequest{Names: []string{v2Name("b"), v2Name("a")}}))
		if err != nil || len(batch.Msg.GetSecrets()) != 2 || batch.Msg.GetSecrets()[0].GetName() != v2Name("b") {
			t.Errorf("v2: %v, %v", batch, err)
		}
	}
}
