package secrets_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
)

// watchV1 opens a watch; next receives its messages in order.
func watchV1(t *testing.T, a api, req *secretsv1.WatchSecretsRequest) (next func() *secretsv1.WatchSecretsResponse) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := a.v1.WatchSecrets(ctx, connect.NewRequest(req))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = stream.Close() // it was cancelled
	})
	return func() *secretsv1.WatchSecretsResponse {
		t.Helper()
		if !stream.Receive() {
			t.Fatalf("the watch has ended: %v", stream.Err())
		}
		return stream.Msg()
	}
}

func put(s *secretsv1.Secret) *secretsv1.WatchSecretsResponse {
	return &secretsv1.WatchSecretsResponse{Event: secretsv1.WatchSecretsResponse_EVENT_PUT, Name: s.GetName(), Secret: s}
}

func deleted(name string) *secretsv1.WatchSecretsResponse {
	return &secretsv1.WatchSecretsResponse{Event: secretsv1.WatchSecretsResponse_EVENT_DELETE, Name: name}
}

func caughtUp() *secretsv1.WatchSecretsResponse {
	return &secretsv1.WatchSecretsResponse{Event: secretsv1.WatchSecretsResponse_EVENT_CAUGHT_UP}
}

func expect(t *testing.T, got, want *secretsv1.WatchSecretsResponse) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("watched %v, want %v", got, want)
	}
}

func v1Watch(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	first := createV1(t, a, "a", secretV1())
	next := watchV1(t, a, &secretsv1.WatchSecretsRequest{})
	expect(t, next(), put(first))
	expect(t, next(), caughtUp())
	second := createV1(t, a, "b", &secretsv1.Secret{})
	expect(t, next(), put(second))
	res, err := a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: first.GetName(), Payload: []byte("next")}))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, next(), put(res.Msg.GetSecret()))
	if _, err := a.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: second.GetName()})); err != nil {
		t.Fatal(err)
	}
	expect(t, next(), deleted(second.GetName()))
}

// v1WatchSome: one that no longer meets the filter is sent as deleted, one that never did
// not at all, and of each only what the mask names.
func v1WatchSome(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	if _, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/q", SecretId: "a", Secret: secretV1()})); err != nil {
		t.Fatal(err)
	}
	next := watchV1(t, a, &secretsv1.WatchSecretsRequest{
		Parent: "projects/p", Filter: `owner.startsWith("payments/")`, ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"owner"}},
	})
	expect(t, next(), caughtUp())
	if _, err := a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: "projects/q/secrets/a"})); err != nil {
		t.Fatal(err)
	}
	createV1(t, a, "other", &secretsv1.Secret{Owner: "search/bob"})
	name := createV1(t, a, "s", secretV1()).GetName()
	want := put(&secretsv1.Secret{Owner: "payments/ada"})
	want.Name = name
	expect(t, next(), want)
	if _, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: name, Owner: "search/ada"}})); err != nil {
		t.Fatal(err)
	}
	expect(t, next(), deleted(name))
}

func v1WatchRefused(t *testing.T, a api, _ *sampletest.Store) {
	for field, req := range map[string]*secretsv1.WatchSecretsRequest{
		"filter":    {Filter: "expire_time > 5"},
		"read_mask": {ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"owner_team"}}},
		"parent":    {Parent: "projects/p/secrets/s"},
	} {
		stream, err := a.v1.WatchSecrets(context.Background(), connect.NewRequest(req))
		if err == nil {
			if stream.Receive() {
				t.Errorf("%s: watched %v", field, stream.Msg())
			}
			err = stream.Err()
			_ = stream.Close() // it has ended
		}
		sampletest.WantError(t, err, connect.CodeInvalidArgument, field)
	}
}

func TestV2Watch(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	createV2(t, a, "us-west2", "a", secretV2("us-west2"))
	stream, err := a.v2.WatchSecrets(ctx, connect.NewRequest(&secretsv2.WatchSecretsRequest{Parent: "projects/p/regions/eu"}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close() //nolint:errcheck // it was cancelled
	expect := func(event secretsv2.WatchSecretsResponse_Event, name string, secret *secretsv2.Secret) {
		t.Helper()
		want := &secretsv2.WatchSecretsResponse{Event: event, Name: name, Secret: secret}
		if !stream.Receive() || !proto.Equal(stream.Msg(), want) {
			t.Errorf("watched %v, error %v, want %v", stream.Msg(), stream.Err(), want)
		}
	}
	expect(secretsv2.WatchSecretsResponse_EVENT_CAUGHT_UP, "", nil)
	s := createV2(t, a, "eu", "a", secretV2("eu"))
	expect(secretsv2.WatchSecretsResponse_EVENT_PUT, s.GetName(), s)
	if _, err := a.v2.DeleteSecret(ctx, connect.NewRequest(&secretsv2.DeleteSecretRequest{Name: s.GetName()})); err != nil {
		t.Fatal(err)
	}
	expect(secretsv2.WatchSecretsResponse_EVENT_DELETE, s.GetName(), nil)
}
