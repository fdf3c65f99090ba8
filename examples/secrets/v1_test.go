package secrets_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/record"
)

// stacks returns the v1 API over both versions of the data.
func stacks() map[string]func(t *testing.T) (api, *sampletest.Store) {
	return map[string]func(t *testing.T) (api, *sampletest.Store){
		"v1 data": func(t *testing.T) (api, *sampletest.Store) {
			s := sampletest.New(t, secrets.Kind)
			return serve(t, secrets.StackV1(s, sampletest.New(t, secrets.Kind))), s
		},
		"v2 data": func(t *testing.T) (api, *sampletest.Store) {
			s := sampletest.New(t, secrets.Kind)
			return serve(t, secrets.StackV2(s)), s
		},
	}
}

// TestV1 runs the v1 API over both versions of the data: clients must not be able to tell
// them apart.
func TestV1(t *testing.T) {
	t.Parallel()
	for name, stack := range stacks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, api, *sampletest.Store){
				"create and get":     v1CreateAndGet,
				"a bare secret":      v1BareSecret,
				"refused secrets":    v1Refused,
				"refused requests":   v1RefusedRequests,
				"read masks":         v1ReadMasks,
				"update":             v1Update,
				"update masks":       v1UpdateMasks,
				"expected revision":  v1ExpectedRevision,
				"set payload":        v1SetPayload,
				"delete":             v1Delete,
				"pages":              v1Pages,
				"filters":            v1Filters,
				"filters refused":    v1FiltersRefused,
				"inexpressible":      v1Inexpressible,
				"order":              v1Order,
				"concurrent changes": v1Concurrent,
				"unknown fields":     v1UnknownFields,
				"tried again":        v1TriedAgain,
				"import":             v1Import,
				"watch":              v1Watch,
				"watch some":         v1WatchSome,
				"watch refused":      v1WatchRefused,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					a, s := stack(t)
					test(t, a, s)
				})
			}
		})
	}
}

func v1CreateAndGet(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	want := secretV1()
	made := createV1(t, a, "s", want)
	if made.GetRevision() <= 0 {
		t.Errorf("revision of a new secret is %d", made.GetRevision())
	}
	want.Name, want.Revision = "projects/p/secrets/s", made.GetRevision()
	if got := getV1(t, a, want.GetName()); !proto.Equal(made, want) || !proto.Equal(got, want) {
		t.Errorf("made %v\nread %v\nwant %v", made, got, want)
	}
	_, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: "s", Secret: secretV1()}))
	sampletest.WantError(t, err, connect.CodeAlreadyExists)
	wantTold(t, err, "projects/p/secrets/s: record exists already")
	const none = "projects/p/secrets/t"
	_, err = a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: none}))
	sampletest.WantError(t, err, connect.CodeNotFound)
	wantTold(t, err, none+": record not found")
	_, err = a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: none, Payload: []byte("p")}}))
	wantTold(t, err, none+": record not found")
	_, err = a.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: none}))
	wantTold(t, err, none+": record not found")
}

func v1BareSecret(t *testing.T, a api, _ *sampletest.Store) {
	want := &secretsv1.Secret{}
	want.Revision = createV1(t, a, "s", want).GetRevision()
	want.Name = "projects/p/secrets/s"
	if got := getV1(t, a, want.GetName()); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func v1Refused(t *testing.T, a api, s *sampletest.Store) {
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprint("l", i)] = ""
	}
	for name, tc := range map[string]struct {
		change func(*secretsv1.Secret)
		want   string
	}{
		"expiry before 1970":  {func(s *secretsv1.Secret) { s.ExpiresAt = -1 }, "expires_at"},
		"expiry after 9999":   {func(s *secretsv1.Secret) { s.ExpiresAt = 1 << 40 }, "expires_at"},
		"owner without slash": {func(s *secretsv1.Secret) { s.Owner = "ada" }, "owner"},
		"owner without team":  {func(s *secretsv1.Secret) { s.Owner = "/ada" }, "owner"},
		"owner of three":      {func(s *secretsv1.Secret) { s.Owner = "a/b/c" }, "owner"},
		"key of a label":      {func(s *secretsv1.Secret) { s.Labels = map[string]string{"a.b": ""} }, `labels: the key "a.b"`},
		"many labels":         {func(s *secretsv1.Secret) { s.Labels = many }, "labels"},
		"long label":          {func(s *secretsv1.Secret) { s.Labels = map[string]string{"a": strings.Repeat("x", 1000)} }, "labels.a"},
		"replaces no name":    {func(s *secretsv1.Secret) { s.Replaces = "before" }, "replaces"},
		"replaces a project":  {func(s *secretsv1.Secret) { s.Replaces = "projects/p" }, "replaces"},
		"large payload":       {func(s *secretsv1.Secret) { s.Payload = make([]byte, 1<<20) }, "payload"},
		"another name":        {func(s *secretsv1.Secret) { s.Name = "projects/p/secrets/other" }, "name"},
	} {
		in := secretV1()
		tc.change(in)
		_, err := a.v1.CreateSecret(context.Background(), connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: "s", Secret: in}))
		t.Run(name, func(t *testing.T) { sampletest.WantError(t, err, connect.CodeInvalidArgument, tc.want) })
	}
	if len(s.All(t, secrets.Kind)) != 0 {
		t.Error("something was written")
	}
}

func v1RefusedRequests(t *testing.T, a api, s *sampletest.Store) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		call func() error
		want string
	}{
		"no secret": {func() error {
			_, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: "s"}))
			return err
		}, "secret"},
		"no parent": {func() error {
			_, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{SecretId: "s", Secret: secretV1()}))
			return err
		}, "parent"},
		"parent of v2": {func() error {
			_, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p/regions/us-west2", SecretId: "s", Secret: secretV1()}))
			return err
		}, "parent"},
		"no id": {func() error {
			_, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", Secret: secretV1()}))
			return err
		}, "secret_id"},
		"id with a slash": {func() error {
			_, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: "a/b", Secret: secretV1()}))
			return err
		}, "secret_id"},
		"get of v2's name": {func() error {
			_, err := a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/regions/us-west2/secrets/s"}))
			return err
		}, "name"},
		"list of a secret": {func() error {
			_, err := a.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{Parent: "projects/p/secrets/s"}))
			return err
		}, "parent"},
		"negative page": {func() error {
			_, err := a.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{PageSize: -1}))
			return err
		}, "page_size"},
		"foreign token": {func() error {
			_, err := a.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{PageToken: "x"}))
			return err
		}, "page_token"},
		"update of nothing": {func() error {
			_, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{}))
			return err
		}, "secret"},
	} {
		t.Run(name, func(t *testing.T) { sampletest.WantError(t, tc.call(), connect.CodeInvalidArgument, tc.want) })
	}
	if len(s.Writes()) != 0 {
		t.Error("something was written")
	}
}

func v1ReadMasks(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	full := createV1(t, a, "s", secretV1())
	for _, tc := range []struct {
		paths []string
		want  *secretsv1.Secret
	}{
		{nil, full},
		{[]string{"*"}, full},
		{[]string{"owner"}, &secretsv1.Secret{Owner: full.GetOwner()}},
		{[]string{"name", "expires_at"}, &secretsv1.Secret{Name: full.GetName(), ExpiresAt: full.GetExpiresAt()}},
		{[]string{"replaces", "payload"}, &secretsv1.Secret{Replaces: full.GetReplaces(), Payload: full.GetPayload()}},
		{[]string{"labels.env"}, &secretsv1.Secret{Labels: map[string]string{"env": "prod"}}},
		{[]string{"labels", "revision"}, &secretsv1.Secret{Labels: full.GetLabels(), Revision: full.GetRevision()}},
	} {
		mask := &fieldmaskpb.FieldMask{Paths: tc.paths}
		got, err := a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: full.GetName(), ReadMask: mask}))
		if err != nil || !proto.Equal(got.Msg.GetSecret(), tc.want) {
			t.Errorf("get %v: %v %v, want %v", tc.paths, got, err, tc.want)
		}
		list, err := a.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{ReadMask: mask}))
		if err != nil || len(list.Msg.GetSecrets()) != 1 || !proto.Equal(list.Msg.GetSecrets()[0], tc.want) {
			t.Errorf("list %v: %v %v, want %v", tc.paths, list, err, tc.want)
		}
	}
	for _, path := range []string{"expire_time", "owner_team", "rotation_days", "nonesuch"} {
		mask := &fieldmaskpb.FieldMask{Paths: []string{path}}
		_, err := a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: full.GetName(), ReadMask: mask}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "read_mask", path)
		_, err = a.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{ReadMask: mask}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "read_mask", path)
	}
}

func v1Update(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	want := createV1(t, a, "s", secretV1())
	// Without a mask, what the secret sets changes, and nothing else.
	res, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: want.GetName(), Owner: "search/bob", ExpiresAt: 5}}))
	if err != nil {
		t.Fatal(err)
	}
	want.Owner, want.ExpiresAt = "search/bob", 5
	want.Revision++
	if got := getV1(t, a, want.GetName()); !proto.Equal(res.Msg.GetSecret(), want) || !proto.Equal(got, want) {
		t.Errorf("answered %v\nread %v\nwant %v", res.Msg.GetSecret(), got, want)
	}
	_, err = a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/t", Owner: "a/b"}}))
	sampletest.WantError(t, err, connect.CodeNotFound)
	for _, bad := range []*secretsv1.Secret{
		{Name: want.GetName(), Owner: "search"}, {Name: want.GetName(), ExpiresAt: -1}, {Name: want.GetName(), Replaces: "x"}, {Owner: "a/b"},
	} {
		_, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: bad}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument)
	}
	if got := getV1(t, a, want.GetName()); !proto.Equal(got, want) {
		t.Errorf("a refused update left %v, want %v", got, want)
	}
}

func v1UpdateMasks(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	want := createV1(t, a, "s", secretV1())
	update := func(in *secretsv1.Secret, paths ...string) error {
		in.Name = want.GetName()
		_, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: in, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}}))
		return err
	}
	for _, tc := range []struct {
		in    *secretsv1.Secret
		paths []string
		then  func()
	}{
		// Only what the mask names.
		{&secretsv1.Secret{Owner: "x/y", Payload: []byte("new")}, []string{"payload"}, func() { want.Payload = []byte("new") }},
		// What it names and the secret does not set is cleared.
		{&secretsv1.Secret{}, []string{"expires_at", "owner"}, func() { want.ExpiresAt, want.Owner = 0, "" }},
		{&secretsv1.Secret{ExpiresAt: 7, Owner: "a/b"}, []string{"owner", "expires_at"}, func() { want.ExpiresAt, want.Owner = 7, "a/b" }},
		{&secretsv1.Secret{Replaces: "projects/q/secrets/x"}, []string{"replaces"}, func() { want.Replaces = "projects/q/secrets/x" }},
		{&secretsv1.Secret{}, []string{"replaces"}, func() { want.Replaces = "" }},
		{&secretsv1.Secret{Labels: map[string]string{"a": "b"}}, []string{"labels"}, func() { want.Labels = map[string]string{"a": "b"} }},
		{&secretsv1.Secret{}, []string{"labels", "payload"}, func() { want.Labels, want.Payload = nil, nil }},
		// Name and revision are the service's own.
		{&secretsv1.Secret{Revision: 1, Payload: []byte("p")}, []string{"name", "revision", "payload"}, func() { want.Payload = []byte("p") }},
		{&secretsv1.Secret{Owner: "x/y"}, []string{"*"}, func() { want.Owner, want.ExpiresAt, want.Payload = "x/y", 0, nil }},
	} {
		if err := update(tc.in, tc.paths...); err != nil {
			t.Errorf("%v: %v", tc.paths, err)
			continue
		}
		tc.then()
		want.Revision++
		if got := getV1(t, a, want.GetName()); !proto.Equal(got, want) {
			t.Errorf("%v: %v, want %v", tc.paths, got, want)
		}
	}
	for _, path := range []string{"expire_time", "owner_person", "nonesuch"} {
		sampletest.WantError(t, update(secretV1(), path), connect.CodeInvalidArgument, "update_mask", path)
	}
}

func v1ExpectedRevision(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	made := createV1(t, a, "s", secretV1())
	update := func(expected int64) error {
		_, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: made.GetName(), Owner: "a/b"}, ExpectedRevision: &expected}))
		return err
	}
	if err := update(made.GetRevision()); err != nil {
		t.Error(err)
	}
	sampletest.WantError(t, update(made.GetRevision()), connect.CodeAborted, "revision")
	sampletest.WantError(t, update(0), connect.CodeAborted, "revision")
	if _, err := a.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: made.GetName()})); err != nil {
		t.Fatal(err)
	}
	// One that was made anew is not the one that was read.
	again := createV1(t, a, "s", secretV1())
	if again.GetRevision() == made.GetRevision() {
		t.Error("a secret made anew has the revision of the one before")
	}
	sampletest.WantError(t, update(made.GetRevision()), connect.CodeAborted)
}

func v1SetPayload(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	want := createV1(t, a, "s", secretV1())
	res, err := a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: want.GetName(), Payload: []byte("next")}))
	if err != nil {
		t.Fatal(err)
	}
	want.Payload = []byte("next")
	want.Revision++
	if got := getV1(t, a, want.GetName()); !proto.Equal(got, want) || !proto.Equal(res.Msg.GetSecret(), want) {
		t.Errorf("answered %v\nread %v\nwant %v", res.Msg.GetSecret(), got, want)
	}
	_, err = a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: "projects/p/secrets/t"}))
	sampletest.WantError(t, err, connect.CodeNotFound)
	_, err = a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: want.GetName(), Payload: make([]byte, 1<<20)}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "payload")
}

func v1Delete(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	made := createV1(t, a, "s", secretV1())
	for i := range 2 {
		_, err := a.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: made.GetName()}))
		if i == 0 && err != nil {
			t.Error(err)
		}
		if i == 1 {
			sampletest.WantError(t, err, connect.CodeNotFound)
		}
	}
	_, err := a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: made.GetName()}))
	sampletest.WantError(t, err, connect.CodeNotFound)
}

func v1Concurrent(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	made := createV1(t, a, "s", &secretsv1.Secret{})
	const writers, each = 4, 5
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				for {
					s := getV1(t, a, made.GetName())
					labels := map[string]string{}
					maps.Copy(labels, s.GetLabels())
					labels[fmt.Sprint("w", w)] += "x"
					_, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{
						Secret: &secretsv1.Secret{Name: made.GetName(), Labels: labels}, ExpectedRevision: proto.Int64(s.GetRevision()),
					}))
					if err == nil {
						break
					}
					if connect.CodeOf(err) != connect.CodeAborted {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	got := getV1(t, a, made.GetName())
	if got.GetRevision() != made.GetRevision()+writers*each {
		t.Errorf("%d changes took the revision from %d to %d", writers*each, made.GetRevision(), got.GetRevision())
	}
	for w := range writers {
		if got.GetLabels()[fmt.Sprint("w", w)] != strings.Repeat("x", each) {
			t.Errorf("labels are %v", got.GetLabels())
		}
	}
}

func v1UnknownFields(t *testing.T, a api, s *sampletest.Store) {
	made := createV1(t, a, "s", secretV1())
	stored := s.All(t, secrets.Kind)[0]
	name, _ := stored.Key.Name()
	var doc bson.D
	if err := bson.Unmarshal(stored.Doc, &doc); err != nil {
		t.Fatal(err)
	}
	s.Put(t, secrets.Kind, slices.Insert(doc, 2, bson.E{Key: "future", Value: bson.D{{Key: "x", Value: 1}}}))
	if _, err := a.v1.SetPayload(context.Background(), connect.NewRequest(&secretsv1.SetPayloadRequest{Name: made.GetName(), Payload: []byte("p")})); err != nil {
		t.Fatal(err)
	}
	if v, err := docOf(t, s, name).LookupErr("future", "x"); err != nil || v.AsInt64() != 1 {
		t.Errorf("what this program does not know became %v", docOf(t, s, name))
	}
}

// v1TriedAgain: a change that met another one is made on top of it; one that always does
// is refused.
func v1TriedAgain(t *testing.T, a api, s *sampletest.Store) {
	ctx := context.Background()
	made := createV1(t, a, "s", secretV1())
	met := 0
	s.BeforeWrite(func([]record.Mutation) error {
		if met++; met <= 3 {
			return record.ErrMismatch
		}
		return nil
	})
	if _, err := a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: made.GetName(), Payload: []byte("p")})); err != nil || met != 4 {
		t.Errorf("after %d tries: %v", met, err)
	}
	s.BeforeWrite(func([]record.Mutation) error { return record.ErrMismatch })
	_, err := a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: made.GetName(), Payload: []byte("p")}))
	sampletest.WantError(t, err, connect.CodeAborted)
	s.BeforeWrite(func([]record.Mutation) error { return record.ErrUnknown })
	_, err = a.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: made.GetName(), Payload: []byte("p")}))
	sampletest.WantError(t, err, connect.CodeUnavailable)
}
