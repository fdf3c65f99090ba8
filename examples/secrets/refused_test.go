package secrets_test

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/internal/base/inprocess"
)

// translated is v1 over v2 data by v2's handlers: the requests are translated through the lens.
func translated(t *testing.T, v2 *sampletest.Store) api {
	t.Helper()
	l := secrets.Lens()
	file1, file2 := secretsv1.File_secrets_v1_secrets_proto, secretsv2.File_secrets_v2_secrets_proto
	r, err := apiversion.FromLens(apiversion.Resource{
		Old: file1.Messages().ByName("Secret"), New: file2.Messages().ByName("Secret"), UpMapping: l.UpMapping(), DownMapping: l.DownMapping(),
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	table, err := apiversion.NewTable(apiversion.Config{
		Old: file1.Services().ByName("SecretService"), New: file2.Services().ByName("SecretService"), Resources: []*apiversion.Resource{r},
		Methods: []apiversion.Method{
			{Old: "SetPayload", New: "RotateSecret"},
			{Old: "ListOwners", Discontinued: "list the secrets, and look at their owners"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, native := secrets.NativeV2(v2)
	return api{v1: secretsv1connect.NewSecretServiceClient(inprocess.Client(apiversion.NewHandler(table, native, apiversion.Options{})), "http://inprocess")}
}

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
		// These v2 has no way to say.
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

// TestRefusedInEachWay counts what a v1 client can no longer ask once the data are v2's: nothing
// over an adapted store, which gives the answers that v1's own has; and by name what is refused
// where requests are translated. docs/library.md has the numbers.
func TestRefusedInEachWay(t *testing.T) {
	t.Parallel()
	requests := asked()
	if len(requests) != 25 {
		t.Fatalf("%d requests", len(requests))
	}
	up, _ := directions(t)
	v1 := sampletest.New(t, secrets.Kind)
	own := direct(secrets.StackV1(v1, nil))
	// None is without an expiry, an owner or what it replaces: a lens on messages, which cannot
	// leave such fields out, refuses these as a whole.
	for i, id := range []string{"a", "b", "c", "d"} {
		createV1(t, own, id, &secretsv1.Secret{
			Owner: []string{"payments/ada", "payments/bob", "search/ada", "search/cy"}[i], ExpiresAt: int64(100 * (i + 1)),
			Labels: map[string]string{"env": []string{"prod", "test"}[i%2]}, Replaces: "projects/p/secrets/" + []string{"z", "y"}[i/2],
		})
	}
	ways := map[string]api{
		"own": own, "adapted": direct(secrets.StackV2(moved(t, up, v1))), "translated": translated(t, moved(t, up, v1)),
	}
	refused := map[string][]string{}
	for _, r := range requests {
		want, err := r.call(ways["own"])
		if err != nil {
			t.Errorf("%s over v1's own data: %v", r.name, err)
			continue
		}
		for _, way := range []string{"adapted", "translated"} {
			got, err := r.call(ways[way])
			switch {
			case err != nil:
				refused[way] = append(refused[way], r.name)
			case !proto.Equal(got, want):
				t.Errorf("%s, %s:\ngot  %v\nwant %v", r.name, way, got, want)
			}
		}
	}
	if len(refused["adapted"]) > 0 {
		t.Errorf("refused over an adapted store: %q", refused["adapted"])
	}
	t.Logf("refused where requests are translated: %q", refused["translated"])
	if got := len(refused["translated"]); got != 8 {
		t.Errorf("%d are refused where requests are translated", got)
	}
}
