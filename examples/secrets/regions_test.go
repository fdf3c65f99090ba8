package secrets_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
)

// inRegion returns both APIs over v2 data in region us, which shows copies of eu.
func inRegion(t *testing.T) (api, *sampletest.Store) {
	t.Helper()
	s := sampletest.New(t, secrets.Kind, region.CopiesKind(secrets.Kind))
	return serve(t, secrets.StackV2(region.Over(s, "us", []string{"eu"}, secrets.RegionsV2()))), s
}

// copyOf stores a copy of eu that is like an owned secret.
func copyOf(t *testing.T, s *sampletest.Store, owned, name string) {
	t.Helper()
	key := region.CopyKey("eu", name)
	doc, err := region.WithID(docOf(t, s, owned), key)
	if err != nil {
		t.Fatal(err)
	}
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	for i := range d {
		switch d[i].Key {
		case "name":
			d[i].Value = name
		case "home":
			d[i].Value = "eu"
		}
	}
	if doc, err = bson.Marshal(d); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), []record.Mutation{{Kind: region.CopiesKind(secrets.Kind), Key: record.StringKey(key), Doc: doc}}); err != nil {
		t.Fatal(err)
	}
}

// TestHome: the service sets the home of a new secret, in both APIs. A secret with another home
// belongs there.
func TestHome(t *testing.T) {
	t.Parallel()
	a, _ := inRegion(t)
	if s := createV1(t, a, "one", &secretsv1.Secret{}); s.GetHome() != "us" {
		t.Errorf("over v2 the home is %q", s.GetHome())
	}
	if s := createV2(t, a, "us-west2", "two", &secretsv2.Secret{}); s.GetHome() != "us" {
		t.Errorf("the home is %q", s.GetHome())
	}
	_, err := a.v1.CreateSecret(t.Context(), connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: "three", Secret: &secretsv1.Secret{Home: "eu"}}))
	if reason, meta := refusal.Of(err); reason != refusal.NotOwner || meta[refusal.MetaRegion] != "eu" {
		t.Errorf("a secret of another region: %v", err)
	}
	_, err = a.v2.CreateSecret(t.Context(), connect.NewRequest(&secretsv2.CreateSecretRequest{Parent: "projects/p/regions/eu", SecretId: "three", Secret: &secretsv2.Secret{Home: "a:b"}}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "home")
	without := serve(t, secrets.StackV2(sampletest.New(t, secrets.Kind)))
	if s := createV1(t, without, "one", &secretsv1.Secret{}); s.GetHome() != "" {
		t.Errorf("without regions the home is %q", s.GetHome())
	}
}

// TestCopiesInBothAPIs: reads, filters, orders, pages and watches of both APIs show copies like owned
// secrets, and no API changes one.
func TestCopiesInBothAPIs(t *testing.T) {
	t.Parallel()
	a, s := inRegion(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const prefix = "projects/p/regions/us-west2/secrets/"
	for _, id := range []string{"a", "c", "e"} {
		createV1(t, a, id, secretV1())
	}
	copyOf(t, s, prefix+"a", prefix+"b")
	if got := getV1(t, a, "projects/p/secrets/b"); got.GetHome() != "eu" || got.GetOwner() != "payments/ada" {
		t.Errorf("v1 reads %v", got)
	}
	if got := getV2(t, a, prefix+"b"); got.GetHome() != "eu" || got.GetName() != prefix+"b" {
		t.Errorf("v2 reads %v", got)
	}
	for what, c := range map[string]struct {
		req  *secretsv1.ListSecretsRequest
		want []string
	}{
		"pages":  {&secretsv1.ListSecretsRequest{PageSize: 1}, []string{"a", "b", "c", "e"}},
		"filter": {&secretsv1.ListSecretsRequest{Filter: `home == "eu"`}, []string{"b"}},
		"order":  {&secretsv1.ListSecretsRequest{OrderBy: "home, name", PageSize: 3}, []string{"b", "a", "c", "e"}},
	} {
		if got := listV1(t, a, c.req); !slices.Equal(got, c.want) {
			t.Errorf("%s: listed %v, want %v", what, got, c.want)
		}
	}
	next := watchV1(t, a, &secretsv1.WatchSecretsRequest{Filter: `home == "eu"`})
	expect(t, next(), put(getV1(t, a, "projects/p/secrets/b")))
	expect(t, next(), caughtUp())
	copyOf(t, s, prefix+"a", prefix+"d")
	expect(t, next(), put(getV1(t, a, "projects/p/secrets/d")))
	for what, call := range map[string]func() error{
		"v1 update": func() error {
			_, err := a.v1.UpdateSecret(ctx, connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: "projects/p/secrets/b"}}))
			return err
		},
		"v1 delete": func() error {
			_, err := a.v1.DeleteSecret(ctx, connect.NewRequest(&secretsv1.DeleteSecretRequest{Name: "projects/p/secrets/b"}))
			return err
		},
		"v2 own method": func() error {
			_, err := a.v2.RotateSecret(ctx, connect.NewRequest(&secretsv2.RotateSecretRequest{Name: prefix + "b", Payload: []byte("x")}))
			return err
		},
		"v2 delete": func() error {
			_, err := a.v2.DeleteSecret(ctx, connect.NewRequest(&secretsv2.DeleteSecretRequest{Name: prefix + "b"}))
			return err
		},
	} {
		if reason, meta := refusal.Of(call()); reason != refusal.NotOwner || meta[refusal.MetaRegion] != "eu" {
			t.Errorf("%s: the reason is %q", what, reason)
		}
	}
	if got := getV2(t, a, prefix+"b"); len(got.GetPayload()) != 3 {
		t.Errorf("the copy was changed: %v", got)
	}
}

// TestMoveBegins: both APIs begin and cancel a move. What a client sends as its state is ignored.
func TestMoveBegins(t *testing.T) {
	t.Parallel()
	s := sampletest.New(t, secrets.Kind, region.CopiesKind(secrets.Kind))
	a := serve(t, secrets.StackV2(region.Over(s, "us", []string{"eu"}, secrets.RegionsV2()).Moving("v2")))
	const v1, v2 = "projects/p/secrets/one", "projects/p/regions/us-west2/secrets/one"
	createV1(t, a, "one", &secretsv1.Secret{Move: "arrived:eu:a:b"})
	if got := getV1(t, a, v1).GetMove(); got != "" {
		t.Errorf("a client created the state %s", got)
	}
	res, err := a.v1.UpdateSecret(t.Context(), connect.NewRequest(&secretsv1.UpdateSecretRequest{Secret: &secretsv1.Secret{Name: v1, Home: "eu", Move: "arrived:eu:a:b"}}))
	if err != nil || res.Msg.GetSecret().GetHome() != "eu" || res.Msg.GetSecret().GetMove() != "" {
		t.Fatalf("a move: %v, %v", res, err)
	}
	if here, there := getV1(t, a, v1).GetMove(), getV2(t, a, v2).GetMove(); !strings.HasPrefix(there, "leaving:eu:v2.") || here != there {
		t.Errorf("v1 shows %s, v2 shows %s", here, there)
	}
	_, err = a.v1.SetPayload(t.Context(), connect.NewRequest(&secretsv1.SetPayloadRequest{Name: v1, Payload: []byte("x")}))
	if reason, meta := refusal.Of(err); reason != refusal.Moving || meta[refusal.MetaRegion] != "eu" {
		t.Errorf("a write of v1: %v", err)
	}
	rotate := func() error {
		_, err := a.v2.RotateSecret(t.Context(), connect.NewRequest(&secretsv2.RotateSecretRequest{Name: v2, Payload: []byte("x")}))
		return err
	}
	if reason, _ := refusal.Of(rotate()); reason != refusal.Moving {
		t.Errorf("a write of v2 is refused with %q", reason)
	}
	if _, err := a.v2.UpdateSecret(t.Context(), connect.NewRequest(&secretsv2.UpdateSecretRequest{Secret: &secretsv2.Secret{Name: v2, Home: "us"}})); err != nil {
		t.Fatalf("a cancel: %v", err)
	}
	if err := rotate(); err != nil {
		t.Errorf("after the cancel: %v", err)
	}
	if got := getV1(t, a, v1); got.GetMove() != "" || got.GetHome() != "us" || string(got.GetPayload()) != "x" {
		t.Errorf("after the cancel: %v", got)
	}
}
