package secrets_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/internal/base/inprocess"
)

// request is one call of the v1 API.
type request struct {
	name string // for failures
	call func(a api) (proto.Message, error)
}

var (
	sameIDs    = []string{"a", "b", "c", "a b", "ü.%", "-", "{s}", "*", "a`\"", "a/b", "", "A\n"}
	sameOwners = []string{"", "payments/ada", "payments/bob", "search/ada", "ada", "a/b/c", "/ada"}
	sameTimes  = []int64{0, 1, 100, 200, 1800000000, -1, 1 << 40}
	samePaths  = []string{"payload", "expires_at", "owner", "labels", "labels.env", "replaces", "revision", "name", "nonesuch", "owner_team", "*", "labels.*", "labels.`a.b`", "labels.env.x", "owner.x", ""}
	sameNames  = []string{"", "projects/p/secrets/a", "projects/q/secrets/b", "before"}
	atoms      = []string{
		`owner == "payments/ada"`, `owner == ""`, `owner.startsWith("payments/")`, `owner.startsWith("s")`, `owner in ["search/ada", ""]`, `has(owner)`,
		`expires_at == 0`, `expires_at < 100`, `expires_at <= 0`, `expires_at >= 100`, `expires_at > 1`, `expires_at in [0, 200]`, `expires_at >= -5`, `has(expires_at)`,
		`replaces == "projects/p/secrets/a"`, `replaces == ""`, `labels.env == "x"`, `has(labels.env)`, `has(labels)`, `payload == b"p"`,
		`name == "projects/p/secrets/b"`, `name in ["projects/p/secrets/a", "projects/p/secrets/c"]`, `expire_time == ""`, `owner ==`,
		`owner != "payments/ada"`, `owner in []`, `owner == "a/b/c"`, `owner == "/ada"`, `owner.startsWith("payments/a")`, `owner.startsWith("/")`, `owner.startsWith("")`, `owner in ["ada", "search/ada"]`,
		`expires_at != 0`, `expires_at in []`, `expires_at < -1`, `expires_at > 253402300799`, `expires_at == -1`, `expires_at in [0]`, `1 < expires_at`,
		`replaces in ["", "projects/q/secrets/b"]`, `replaces.startsWith("projects/p/secrets/")`, `replaces.startsWith("")`, `replaces.startsWith("projects/")`, `has(replaces)`,
		`name.startsWith("projects/p/secrets/")`, `name != "projects/p/secrets/b"`, `"env" in labels`, `labels["*"] == "x"`, `labels.env in ["x", ""]`, `has(payload)`, `revision > 0`, `true`, `false`,
	}
)

func drawSecret(t *rapid.T) *secretsv1.Secret {
	s := &secretsv1.Secret{
		Payload: []byte(rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "payload")), ExpiresAt: rapid.SampledFrom(sameTimes).Draw(t, "expires_at"),
		Owner: rapid.SampledFrom(sameOwners).Draw(t, "owner"), Replaces: rapid.SampledFrom(sameNames).Draw(t, "replaces"),
	}
	if rapid.Bool().Draw(t, "labels") {
		s.Labels = map[string]string{"env": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "env")}
	}
	return s
}

func drawMask(t *rapid.T) *fieldmaskpb.FieldMask {
	return &fieldmaskpb.FieldMask{Paths: rapid.SliceOfN(rapid.SampledFrom(samePaths), 0, 3).Draw(t, "mask")}
}

func drawRequest(t *rapid.T) request {
	ctx := context.Background()
	id := rapid.SampledFrom(sameIDs).Draw(t, "id")
	name := "projects/p/secrets/" + id
	switch rapid.IntRange(0, 6).Draw(t, "method") {
	case 0, 1:
		req := &secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: id, Secret: drawSecret(t)}
		return request{fmt.Sprint("create ", req), func(a api) (proto.Message, error) {
			return message(a.v1.CreateSecret(ctx, connect.NewRequest(req)))
		}}
	case 2:
		req := &secretsv1.UpdateSecretRequest{Secret: drawSecret(t), UpdateMask: drawMask(t)}
		req.Secret.Name = name
		return request{fmt.Sprint("update ", req), func(a api) (proto.Message, error) {
			return message(a.v1.UpdateSecret(ctx, connect.NewRequest(req)))
		}}
	case 3:
		return request{"delete " + name, func(a api) (proto.Message, error) {
			return message(a.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: name})))
		}}
	case 4:
		req := &secretsv1.GetSecretRequest{Name: name, ReadMask: drawMask(t)}
		return request{fmt.Sprint("get ", req), func(a api) (proto.Message, error) {
			return message(a.v1.GetSecret(ctx, connect.NewRequest(req)))
		}}
	default:
		req := &secretsv1.ListSecretsRequest{
			Parent: rapid.SampledFrom([]string{"", "projects/-", "projects/p", "projects/q", "p", "projects/-/secrets", "-", "projects", "projects/", "projects/p/", "projects/p/secrets/a", "projects/ü.%"}).Draw(t, "parent"), Filter: sampletest.DrawFilter(t, atoms, 2), ReadMask: drawMask(t),
			OrderBy:  rapid.SampledFrom([]string{"", "name", "name desc", "expires_at", "expires_at desc, name", "nonesuch"}).Draw(t, "order"),
			PageSize: rapid.Int32Range(-1, 3).Draw(t, "size"),
		}
		return request{fmt.Sprint("list ", req), func(a api) (proto.Message, error) { return allPages(a, proto.CloneOf(req)) }}
	}
}

// allPages is a list of all pages, with an empty secret between any two of them.
func allPages(a api, req *secretsv1.ListSecretsRequest) (proto.Message, error) {
	out := &secretsv1.ListSecretsResponse{}
	for {
		page, err := message(a.v1.ListSecrets(context.Background(), connect.NewRequest(req)))
		if err != nil {
			return nil, err
		}
		out.Secrets = append(out.Secrets, page.(*secretsv1.ListSecretsResponse).GetSecrets()...)
		if req.PageToken = page.(*secretsv1.ListSecretsResponse).GetNextPageToken(); req.PageToken == "" {
			return out, nil
		}
		out.Secrets = append(out.Secrets, &secretsv1.Secret{})
	}
}

// message is what a response says, but for the revisions, which begin at random.
func message[T any](res *connect.Response[T], err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	m := any(res.Msg).(proto.Message)
	switch m := m.(type) {
	case *secretsv1.ListSecretsResponse:
		for _, s := range m.GetSecrets() {
			s.Revision = 0
		}
	case interface{ GetSecret() *secretsv1.Secret }:
		if s := m.GetSecret(); s != nil {
			s.Revision = 0
		}
	}
	return m, nil
}

// TestV1IsTheSameOverBothData sends what is drawn to v1 over its own data and over v2
// data: the answers are the same, and what one refuses the other refuses.
func TestV1IsTheSameOverBothData(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		own, other := direct(secrets.StackV1(sampletest.New(t, secrets.Kind), nil)), direct(secrets.StackV2(sampletest.New(t, secrets.Kind)))
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			req := drawRequest(rt)
			want, wantErr := req.call(own)
			got, err := req.call(other)
			if (err == nil) != (wantErr == nil) || !refused(err) || !refused(wantErr) {
				rt.Fatalf("%s: error %v over v2 data, %v over v1 data", req.name, err, wantErr)
			}
			if err == nil && !proto.Equal(got, want) {
				rt.Fatalf("%s:\n%v over v2 data\n%v over v1 data", req.name, got, want)
			}
		}
	})
}

// direct calls a stack without a connection.
func direct(h http.Handler) api {
	return api{v1: secretsv1connect.NewSecretServiceClient(inprocess.Client(h), "http://inprocess")}
}

// refused reports an error that is the request's own fault, or none. A request that is
// wrong in two ways may be refused for either.
func refused(err error) bool {
	if err == nil {
		return true
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists:
		return true
	default:
		return false
	}
}
