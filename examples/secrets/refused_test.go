package secrets_test

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
)

// asked are 25 requests of a v1 client, each of which v1 answers over its own data.
func asked() []request {
	ctx := context.Background()
	var out []request
	add := func(name string, call func(a api) (proto.Message, error)) { out = append(out, request{name, call}) }
	list := func(req *secretsv1.ListSecretsRequest) {
		add("list "+req.String(), func(a api) (proto.Message, error) { return allPages(a, proto.CloneOf(req)) })
	}
	update := func(s *secretsv1.Secret, paths ...string) {
		s.Name = "projects/p/secrets/a"
		add("update "+strings.Join(paths, " "), func(a api) (proto.Message, error) {
			return message(a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})))
		})
	}
	get := func(paths ...string) {
		add("get "+strings.Join(paths, " "), func(a api) (proto.Message, error) {
			return message(a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/a", ReadMask: &fieldmaskpb.FieldMask{Paths: paths}})))
		})
	}
	get()
	get("owner", "expires_at")
	update(&secretsv1.Secret{Payload: []byte("p")}, "payload")
	update(&secretsv1.Secret{Owner: "search/ada"}, "owner")
	update(&secretsv1.Secret{ExpiresAt: 150}, "expires_at")
	update(&secretsv1.Secret{Labels: map[string]string{"env": "test"}}, "labels.env")
	add("set payload", func(a api) (proto.Message, error) {
		return message(a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: "projects/p/secrets/b", Payload: []byte("new")})))
	})
	add("list owners", func(a api) (proto.Message, error) {
		return message(a.v1.ListOwners(ctx, connect.NewRequest(&secretsv1.ListOwnersRequest{Parent: "projects/p"})))
	})
	list(&secretsv1.ListSecretsRequest{})
	list(&secretsv1.ListSecretsRequest{Parent: "projects/p", PageSize: 2})
	list(&secretsv1.ListSecretsRequest{Parent: "projects/-"})
	for _, filter := range []string{
		`owner == "payments/ada"`, `owner.startsWith("payments/")`, `expires_at > 100`, `labels.env == "prod"`, `replaces == "projects/p/secrets/z"`,
		// v2 has no way to say these.
		`owner > "payments/bob"`, `owner.contains("s/")`, `name > "projects/p/secrets/c"`, `name.startsWith("projects/p/secrets/d")`, `replaces > "projects/p"`,
	} {
		list(&secretsv1.ListSecretsRequest{Parent: "projects/p", Filter: filter})
	}
	list(&secretsv1.ListSecretsRequest{Parent: "projects/p", OrderBy: "owner"})
	list(&secretsv1.ListSecretsRequest{Parent: "projects/p", OrderBy: "replaces desc"})
	list(&secretsv1.ListSecretsRequest{Parent: "projects/p", OrderBy: "expires_at"})
	add("create", func(a api) (proto.Message, error) {
		return message(a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/q", SecretId: "new", Secret: secretV1()})))
	})
	return out
}

// TestAdaptedStoreRefusesNothing sends usual requests of a v1 client to v1's handlers over an
// adapted store. They answer all of them as over v1's own data. docs/library.md has the number.
func TestAdaptedStoreRefusesNothing(t *testing.T) {
	t.Parallel()
	requests := asked()
	if len(requests) != 25 {
		t.Fatalf("%d requests", len(requests))
	}
	up, _ := directions(t)
	v1 := sampletest.New(t, secrets.Kind)
	own := direct(secrets.StackV1(v1, nil))
	for i, id := range []string{"a", "b", "c", "d"} {
		createV1(t, own, id, &secretsv1.Secret{
			Owner: []string{"payments/ada", "payments/bob", "search/ada", "search/cy"}[i], ExpiresAt: int64(100 * (i + 1)),
			Labels: map[string]string{"env": []string{"prod", "test"}[i%2]}, Replaces: "projects/p/secrets/" + []string{"z", "y"}[i/2],
		})
	}
	adapted := direct(secrets.StackV2(moved(t, up, v1)))
	for _, r := range requests {
		want, err := r.call(own)
		if err != nil {
			t.Errorf("%s over v1's own data: %v", r.name, err)
			continue
		}
		got, err := r.call(adapted)
		switch {
		case err != nil:
			t.Errorf("%s is refused: %v", r.name, err)
		case !proto.Equal(got, want):
			t.Errorf("%s:\ngot  %v\nwant %v", r.name, got, want)
		}
	}
}
