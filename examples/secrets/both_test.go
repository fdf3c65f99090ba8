package secrets_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// v2Name is how v2 names a secret that v1 can see.
func v2Name(id string) string { return "projects/p/regions/us-west2/secrets/" + id }

// TestBothVersionsAtOnce: what one version writes the other reads at once.
func TestBothVersionsAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, _ := v2API(t)
	made := createV1(t, a, "s", secretV1())
	want := secretV2("us-west2")
	want.Name, want.Revision, want.RotationDays = v2Name("s"), made.GetRevision(), 0
	if got := getV2(t, a, want.GetName()); !proto.Equal(got, want) {
		t.Fatalf("v1 made %v\nv2 reads %v\nwant %v", made, got, want)
	}

	want.RotationDays, want.OwnerPerson, want.ExpireTime = 30, "bob", nil
	want.Revision++
	if _, err := a.v2.UpdateSecret(ctx, connect.NewRequest(&secretsv2.UpdateSecretRequest{Secret: want, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"rotation_days", "owner_person", "expire_time"}}})); err != nil {
		t.Fatal(err)
	}
	got := getV1(t, a, made.GetName())
	if got.GetOwner() != "payments/bob" || got.GetExpiresAt() != 0 || got.GetRevision() != want.GetRevision() {
		t.Errorf("after a change through v2, v1 reads %v", got)
	}

	// Whatever v1 changes, rotation_days stays.
	for _, change := range []*secretsv1.UpdateSecretRequest{
		{Secret: &secretsv1.Secret{Name: made.GetName(), Owner: "search/cy"}, ExpectedRevision: proto.Int64(want.GetRevision())},
		{Secret: &secretsv1.Secret{Name: made.GetName(), Payload: []byte("p")}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"payload", "labels"}}},
		{Secret: &secretsv1.Secret{Name: made.GetName(), ExpiresAt: 5}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}}},
	} {
		if _, err := a.v1.UpdateSecret(ctx, connect.NewRequest(change)); err != nil {
			t.Fatal(err)
		}
	}
	if got := getV2(t, a, v2Name("s")); got.GetRotationDays() != 30 || got.GetExpireTime().GetSeconds() != 5 || got.GetOwnerTeam() != "" {
		t.Errorf("after changes through v1, v2 reads %v", got)
	}
	if _, err := a.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: made.GetName()})); err != nil {
		t.Fatal(err)
	}
	_, err := a.v2.GetSecret(ctx, connect.NewRequest(&secretsv2.GetSecretRequest{Name: v2Name("s")}))
	sampletest.WantError(t, err, connect.CodeNotFound)
}

// TestV1ShowsItsRegionOnly: secrets of other regions do not exist for v1, whatever it
// asks for.
func TestV1ShowsItsRegionOnly(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	for i, region := range []string{"eu", "us-west2", "us-west21", "eu", "us-west2"} {
		createV2(t, a, region, fmt.Sprint("s", i), secretV2(region))
	}
	for _, req := range []*secretsv1.ListSecretsRequest{
		{}, {Parent: "projects/p"}, {PageSize: 1}, {Filter: `owner == "payments/ada"`}, {OrderBy: "expires_at"}, {PageSize: 1, OrderBy: "expires_at desc"},
	} {
		if got := listV1(t, a, req); !slices.Equal(got, []string{"s1", "s4"}) {
			t.Errorf("%v: %v", req, got)
		}
	}
	next := watchV1(t, a, &secretsv1.WatchSecretsRequest{})
	expect(t, next(), put(getV1(t, a, "projects/p/secrets/s1")))
	expect(t, next(), put(getV1(t, a, "projects/p/secrets/s4")))
	expect(t, next(), caughtUp())
	createV2(t, a, "eu", "elsewhere", secretV2("eu"))
	createV2(t, a, "us-west2", "here", secretV2("us-west2"))
	expect(t, next(), put(getV1(t, a, "projects/p/secrets/here")))
}

// TestListOwners: v2 has no such method, and v1's own goes on over v2 data.
func TestListOwners(t *testing.T) {
	t.Parallel()
	after, _ := v2API(t)
	for name, a := range map[string]api{"v1": serve(t, secrets.StackV1(sampletest.New(t, secrets.Kind), nil)), "v2": after} {
		seedV1(t, a)
		res, err := a.v1.ListOwners(context.Background(), connect.NewRequest(&secretsv1.ListOwnersRequest{Parent: "projects/p"}))
		if want := []string{"payments/ada", "payments/bob", "search/ada", "search/cy"}; err != nil || !slices.Equal(res.Msg.GetOwners(), want) {
			t.Errorf("over %s: owners %v %v, want %v", name, res, err, want)
		}
	}
}

// TestV2WhileV1IsActive: reads show what the sync brought, writes say where to go.
func TestV2WhileV1IsActive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := sampletest.New(t, secrets.Kind)
	made := createV2(t, serve(t, secrets.StackV2(s)), "us-west2", "s", secretV2("us-west2"))
	a := serve(t, secrets.StackV1(sampletest.New(t, secrets.Kind), s))
	if got := getV2(t, a, made.GetName()); !proto.Equal(got, made) {
		t.Errorf("read %v, want %v", got, made)
	}
	if res, err := a.v2.ListSecrets(ctx, connect.NewRequest(&secretsv2.ListSecretsRequest{})); err != nil || len(res.Msg.GetSecrets()) != 1 {
		t.Errorf("listed %v %v", res, err)
	}
	stream, err := a.v2.WatchSecrets(ctx, connect.NewRequest(&secretsv2.WatchSecretsRequest{}))
	if err != nil || !stream.Receive() || stream.Msg().GetName() != made.GetName() {
		t.Errorf("watched %v %v", stream.Msg(), err)
	}
	_ = stream.Close() // the client has seen enough
	before := len(s.Writes())
	for name, call := range map[string]func() error{
		"create": func() error {
			_, err := a.v2.CreateSecret(ctx, connect.NewRequest(&secretsv2.CreateSecretRequest{}))
			return err
		},
		"update": func() error {
			_, err := a.v2.UpdateSecret(ctx, connect.NewRequest(&secretsv2.UpdateSecretRequest{}))
			return err
		},
		"rotate": func() error {
			_, err := a.v2.RotateSecret(ctx, connect.NewRequest(&secretsv2.RotateSecretRequest{Name: made.GetName()}))
			return err
		},
		"delete": func() error {
			_, err := a.v2.DeleteSecret(ctx, connect.NewRequest(&secretsv2.DeleteSecretRequest{Name: made.GetName()}))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			sampletest.WantError(t, call(), connect.CodeFailedPrecondition, "v1 is the active version", "secrets.v1.SecretService")
		})
	}
	if len(s.Writes()) != before {
		t.Error("something was written")
	}
}

// moved is what the engine makes of all records on the other side.
func moved(t testing.TB, d transform.Direction, from *sampletest.Store) *sampletest.Store {
	t.Helper()
	to := sampletest.New(t, secrets.Kind)
	for _, r := range from.All(t, secrets.Kind) {
		out, err := transformed(t, d, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out {
			if err := to.Write(context.Background(), []record.Mutation{{Kind: r.Kind, Key: r.Key, Doc: r.Doc, Absent: true}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// TestClientsSeeTheSameAcrossTheFlip moves what v1 clients made to v2 and back, and lets
// them read it.
func TestClientsSeeTheSameAcrossTheFlip(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	v1 := sampletest.New(t, secrets.Kind)
	a := serve(t, secrets.StackV1(v1, nil))
	seedV1(t, a)
	v2 := moved(t, up, v1)
	again := moved(t, down, v2)
	list := func(a api) *secretsv1.ListSecretsResponse {
		res, err := a.v1.ListSecrets(context.Background(), connect.NewRequest(&secretsv1.ListSecretsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	want := list(a)
	for name, got := range map[string]*secretsv1.ListSecretsResponse{"v2": list(serve(t, secrets.StackV2(v2))), "v1 again": list(serve(t, secrets.StackV1(again, nil)))} {
		if !proto.Equal(got, want) || len(got.GetSecrets()) != 5 {
			t.Errorf("over %s: %v\nwant %v", name, got, want)
		}
	}
	for i, r := range again.All(t, secrets.Kind) {
		if got, want := fieldsOf(t, r.Doc), fieldsOf(t, v1.All(t, secrets.Kind)[i].Doc); got != want {
			t.Errorf("came back as\n%s\nnot\n%s", got, want)
		}
	}
	// What v1 writes over v2 data is what the engine makes of what it writes over v1 data.
	direct := sampletest.New(t, secrets.Kind)
	seedV1(t, serve(t, secrets.StackV2(direct)))
	for i, r := range direct.All(t, secrets.Kind) {
		if got, want := fieldsOf(t, r.Doc, "revision"), fieldsOf(t, v2.All(t, secrets.Kind)[i].Doc, "revision"); got != want {
			t.Errorf("written over v2 data\n%s\nmoved there\n%s", got, want)
		}
	}
}

// TestTokensAcrossTheFlip: a client goes through pages while the active version changes,
// forward and back, between any two of them.
func TestTokensAcrossTheFlip(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	v1 := sampletest.New(t, secrets.Kind)
	before := serve(t, secrets.StackV1(v1, nil))
	seedV1(t, before)
	v2 := moved(t, up, v1)
	after, back := serve(t, secrets.StackV2(v2)), serve(t, secrets.StackV1(moved(t, down, v2), nil))
	for _, req := range []*secretsv1.ListSecretsRequest{
		{}, {Parent: "projects/p"}, {Parent: "projects/p", Filter: `owner != "payments/bob"`},
		{OrderBy: "expires_at"}, {OrderBy: "expires_at desc", Filter: `expires_at > 0`}, {OrderBy: "name"},
	} {
		t.Run(req.String(), func(t *testing.T) {
			want := listV1(t, before, proto.CloneOf(req))
			sampletest.AcrossTheFlip(t, before, after, back, want, func(a api, token string) (names []string, next string, err error) {
				req := proto.CloneOf(req)
				req.PageSize, req.PageToken = 1, token
				res, err := a.v1.ListSecrets(context.Background(), connect.NewRequest(req))
				if err != nil {
					return nil, "", err
				}
				for _, s := range res.Msg.GetSecrets() {
					names = append(names, s.GetName()[strings.LastIndexByte(s.GetName(), '/')+1:])
				}
				return names, res.Msg.GetNextPageToken(), nil
			})
		})
	}
}
