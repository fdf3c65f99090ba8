package secrets_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
)

func secretV2(region string) *secretsv2.Secret {
	return &secretsv2.Secret{
		Payload: []byte{0, 1, 255}, ExpireTime: timestamppb.New(time.Unix(1800000000, 0)), OwnerTeam: "payments", OwnerPerson: "ada",
		Labels: map[string]string{"env": "prod", "tier": ""}, Replaces: "projects/p/regions/" + region + "/secrets/before", RotationDays: 30,
	}
}

func v2API(t testing.TB) (api, *sampletest.Store) {
	s := sampletest.New(t, secrets.Kind)
	return serve(t, secrets.StackV2(s)), s
}

func TestV2CreateAndGet(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	for _, region := range []string{"us-west2", "eu"} {
		want := secretV2(region)
		if region != "us-west2" {
			want.ExpireTime.Nanos = 250e6
		}
		made := createV2(t, a, region, "s", want)
		want.Name, want.Revision = "projects/p/regions/"+region+"/secrets/s", made.GetRevision()
		if got := getV2(t, a, want.GetName()); !proto.Equal(made, want) || !proto.Equal(got, want) || want.GetRevision() <= 0 {
			t.Errorf("made %v\nread %v\nwant %v", made, got, want)
		}
	}
	bare := createV2(t, a, "eu", "bare", &secretsv2.Secret{})
	if want := (&secretsv2.Secret{Name: bare.GetName(), Revision: bare.GetRevision()}); !proto.Equal(getV2(t, a, bare.GetName()), want) {
		t.Errorf("a bare secret is %v", bare)
	}
}

func TestV2Refused(t *testing.T) {
	t.Parallel()
	a, s := v2API(t)
	ctx := context.Background()
	for name, tc := range map[string]struct {
		change func(*secretsv2.Secret)
		want   string
	}{
		"expiry of 1970":              {func(s *secretsv2.Secret) { s.ExpireTime = &timestamppb.Timestamp{} }, "expire_time"},
		"expiry before 1970":          {func(s *secretsv2.Secret) { s.ExpireTime = &timestamppb.Timestamp{Seconds: -1} }, "expire_time"},
		"malformed expiry":            {func(s *secretsv2.Secret) { s.ExpireTime = &timestamppb.Timestamp{Seconds: 1, Nanos: -1} }, "expire_time"},
		"a fraction that v1 lacks":    {func(s *secretsv2.Secret) { s.ExpireTime = &timestamppb.Timestamp{Seconds: 1, Nanos: 250e6} }, "expire_time"},
		"nanoseconds":                 {func(s *secretsv2.Secret) { s.ExpireTime = &timestamppb.Timestamp{Seconds: 1, Nanos: 1} }, "expire_time"},
		"team without person":         {func(s *secretsv2.Secret) { s.OwnerPerson = "" }, "owner_person"},
		"person without team":         {func(s *secretsv2.Secret) { s.OwnerTeam = "" }, "owner_team"},
		"slash in an owner":           {func(s *secretsv2.Secret) { s.OwnerTeam = "a/b" }, "owner_team"},
		"negative rotation":           {func(s *secretsv2.Secret) { s.RotationDays = -1 }, "rotation_days"},
		"replaces of v1":              {func(s *secretsv2.Secret) { s.Replaces = "projects/p/secrets/before" }, "replaces"},
		"replaces of another region":  {func(s *secretsv2.Secret) { s.Replaces = "projects/p/regions/eu/secrets/before" }, "replaces"},
		"another name":                {func(s *secretsv2.Secret) { s.Name = "projects/p/regions/us-west2/secrets/other" }, "name"},
		"key of a label with a slash": {func(s *secretsv2.Secret) { s.Labels = map[string]string{"a/b": ""} }, "labels"},
	} {
		in := secretV2("us-west2")
		tc.change(in)
		_, err := a.v2.CreateSecret(ctx, connect.NewRequest(&secretsv2.CreateSecretRequest{Parent: "projects/p/regions/us-west2", SecretId: "s", Secret: in}))
		t.Run(name, func(t *testing.T) { sampletest.WantError(t, err, connect.CodeInvalidArgument, tc.want) })
	}
	_, err := a.v2.CreateSecret(ctx, connect.NewRequest(&secretsv2.CreateSecretRequest{Parent: "projects/p", SecretId: "s", Secret: secretV2("us-west2")}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "parent", "regions")
	_, err = a.v2.GetSecret(ctx, connect.NewRequest(&secretsv2.GetSecretRequest{Name: "projects/p/secrets/s"}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "name", "regions")
	if len(s.Writes()) != 0 {
		t.Error("something was written")
	}
}

func TestV2Update(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	ctx := context.Background()
	want := createV2(t, a, "eu", "s", secretV2("eu"))
	for _, tc := range []struct {
		in    *secretsv2.Secret
		paths []string
		then  func()
	}{
		{&secretsv2.Secret{RotationDays: 7}, nil, func() { want.RotationDays = 7 }},
		{&secretsv2.Secret{OwnerPerson: "bob"}, []string{"owner_person"}, func() { want.OwnerPerson = "bob" }},
		{&secretsv2.Secret{}, []string{"expire_time", "rotation_days"}, func() { want.ExpireTime, want.RotationDays = nil, 0 }},
		{&secretsv2.Secret{}, []string{"owner_team", "owner_person"}, func() { want.OwnerTeam, want.OwnerPerson = "", "" }},
		{&secretsv2.Secret{Labels: map[string]string{"env": "x"}}, []string{"labels.env"}, func() { want.Labels["env"] = "x" }},
		{&secretsv2.Secret{Payload: []byte("all")}, []string{"*"}, func() {
			*want = secretsv2.Secret{Name: want.GetName(), Revision: want.GetRevision(), Payload: []byte("all")}
		}},
	} {
		tc.in.Name = want.GetName()
		_, err := a.v2.UpdateSecret(ctx, connect.NewRequest(&secretsv2.UpdateSecretRequest{
			Secret: tc.in, UpdateMask: &fieldmaskpb.FieldMask{Paths: tc.paths}, ExpectedRevision: proto.Int64(want.GetRevision()),
		}))
		if err != nil {
			t.Errorf("%v: %v", tc.paths, err)
			continue
		}
		tc.then()
		want.Revision++
		if got := getV2(t, a, want.GetName()); !proto.Equal(got, want) {
			t.Errorf("%v: %v, want %v", tc.paths, got, want)
		}
	}
	_, err := a.v2.UpdateSecret(ctx, connect.NewRequest(&secretsv2.UpdateSecretRequest{
		Secret: &secretsv2.Secret{Name: want.GetName(), OwnerTeam: "a"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"owner_team"}},
	}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "owner_person")
	_, err = a.v2.UpdateSecret(ctx, connect.NewRequest(&secretsv2.UpdateSecretRequest{Secret: &secretsv2.Secret{Name: want.GetName()}, ExpectedRevision: proto.Int64(1)}))
	sampletest.WantError(t, err, connect.CodeAborted)
}

func TestV2RotateAndDelete(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	ctx := context.Background()
	want := createV2(t, a, "eu", "s", secretV2("eu"))
	res, err := a.v2.RotateSecret(ctx, connect.NewRequest(&secretsv2.RotateSecretRequest{Name: want.GetName(), Payload: []byte("next")}))
	if err != nil {
		t.Fatal(err)
	}
	want.Payload, want.Revision = []byte("next"), want.GetRevision()+1
	if !proto.Equal(res.Msg.GetSecret(), want) || !proto.Equal(getV2(t, a, want.GetName()), want) {
		t.Errorf("rotated to %v, want %v", res.Msg.GetSecret(), want)
	}
	if _, err := a.v2.DeleteSecret(ctx, connect.NewRequest(&secretsv2.DeleteSecretRequest{Name: want.GetName()})); err != nil {
		t.Error(err)
	}
	_, err = a.v2.RotateSecret(ctx, connect.NewRequest(&secretsv2.RotateSecretRequest{Name: want.GetName()}))
	sampletest.WantError(t, err, connect.CodeNotFound)
}

func TestV2List(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	for id, region := range map[string]string{"a": "eu", "b": "us-west2", "c": "us-west2", "d": "us-west21"} {
		s := secretV2(region)
		s.RotationDays = int32(id[0] - 'a')
		if id == "c" {
			s.ExpireTime = nil
		}
		createV2(t, a, region, id, s)
	}
	list := func(req *secretsv2.ListSecretsRequest) string {
		var ids []string
		req.PageSize = 1
		for {
			res, err := a.v2.ListSecrets(context.Background(), connect.NewRequest(req))
			if err != nil {
				t.Error(err)
				return ""
			}
			for _, s := range res.Msg.GetSecrets() {
				ids = append(ids, s.GetName()[strings.LastIndexByte(s.GetName(), '/')+1:])
			}
			if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
				return strings.Join(ids, " ")
			}
		}
	}
	for _, tc := range []struct {
		req  *secretsv2.ListSecretsRequest
		want string
	}{
		{&secretsv2.ListSecretsRequest{}, "a b c d"},
		{&secretsv2.ListSecretsRequest{Parent: "projects/p/regions/us-west2"}, "b c"},
		{&secretsv2.ListSecretsRequest{Parent: "projects/q/regions/us-west2"}, ""},
		{&secretsv2.ListSecretsRequest{Filter: `rotation_days > 1 && owner_team == "payments"`}, "c d"},
		{&secretsv2.ListSecretsRequest{Filter: `expire_time < timestamp("2030-01-01T00:00:00Z")`}, "a b d"},
		{&secretsv2.ListSecretsRequest{Filter: `!has(expire_time)`}, "c"},
		{&secretsv2.ListSecretsRequest{OrderBy: "expire_time, rotation_days desc"}, "c d b a"},
	} {
		if got := list(tc.req); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.req, got, tc.want)
		}
	}
	res, err := a.v2.ListSecrets(context.Background(), connect.NewRequest(&secretsv2.ListSecretsRequest{ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"owner_person"}}}))
	if err != nil || !slices.ContainsFunc(res.Msg.GetSecrets(), func(s *secretsv2.Secret) bool { return proto.Equal(s, &secretsv2.Secret{OwnerPerson: "ada"}) }) {
		t.Errorf("masked: %v %v", res, err)
	}
}
