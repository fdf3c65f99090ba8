package secrets_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/sampletest"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

func importV1(id, owner string) *secretsv1.ImportSecretsRequest {
	return &secretsv1.ImportSecretsRequest{Parent: "projects/p", SecretId: id, Secret: &secretsv1.Secret{Owner: owner}}
}

// awaitV1 waits until a secret is there.
func awaitV1(t *testing.T, a api, id string) *secretsv1.Secret {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		res, err := a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/" + id}))
		if err == nil {
			return res.Msg.GetSecret()
		}
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // leave the processor to the server
	}
}

// v1Import is what v1 clients rely on, over the data of either version.
func v1Import(t *testing.T, a api, _ *sampletest.Store) {
	ctx := t.Context()
	createV1(t, a, "b", &secretsv1.Secret{Owner: "team/first"})
	s := a.v1.ImportSecrets(ctx)
	for _, id := range []string{"a", "b", "c"} {
		if err := s.Send(importV1(id, "team/"+id)); err != nil {
			t.Fatal(err)
		}
	}
	res, err := s.CloseAndReceive()
	if err != nil || res.Msg.GetCreated() != 2 || res.Msg.GetExisting() != 1 {
		t.Fatalf("%v, %v", res, err)
	}
	for id, owner := range map[string]string{"a": "team/a", "b": "team/first", "c": "team/c"} {
		if got := getV1(t, a, "projects/p/secrets/"+id).GetOwner(); got != owner {
			t.Errorf("the owner of %s is %s", id, got)
		}
	}
	s = a.v1.ImportSecrets(ctx)
	for _, one := range []*secretsv1.ImportSecretsRequest{importV1("d", "team/d"), importV1("e", "no team"), importV1("f", "team/f")} {
		_ = s.Send(one) // the answer has the reason
	}
	_, err = s.CloseAndReceive()
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "owner")
	if got := getV1(t, a, "projects/p/secrets/d").GetOwner(); got != "team/d" {
		t.Errorf("the message before the bad one was not done: %s", got)
	}
	if _, err := a.v1.GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: "projects/p/secrets/f"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the message after the bad one: %v", err)
	}
}

// TestImportGoesOnOverTheFlip: clients of both versions keep their streams over the switch and the
// rollback. v1's goes on; v2's is refused from the rollback on, and knows how much of it was done.
func TestImportGoesOnOverTheFlip(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	f := newFlippable(t)
	a := f.serve(t)
	old := a.v1.ImportSecrets(t.Context())
	sendV1 := func(id string) {
		t.Helper()
		if err := old.Send(importV1(id, "team/"+id)); err != nil {
			t.Fatal(err)
		}
		if got := awaitV1(t, a, id); got.GetOwner() != "team/"+id {
			t.Errorf("%s is %v", id, got)
		}
	}
	sendV1("a")
	f.flip(t, up)
	sendV1("b")
	if got := getV2(t, a, v2Name("b")); got.GetOwnerPerson() != "b" {
		t.Errorf("v2 has %v", got)
	}
	now := a.v2.ImportSecrets(t.Context())
	for _, id := range []string{"c", "d"} {
		if err := now.Send(&secretsv2.ImportSecretsRequest{Parent: "projects/p/regions/us-west2", SecretId: id, Secret: &secretsv2.Secret{OwnerTeam: "team", OwnerPerson: id}}); err != nil {
			t.Fatal(err)
		}
		awaitV1(t, a, id)
	}
	f.flip(t, down)
	sendV1("e")
	_ = now.Send(&secretsv2.ImportSecretsRequest{Parent: "projects/p/regions/us-west2", SecretId: "f", Secret: &secretsv2.Secret{}})
	_, err := now.CloseAndReceive()
	coded := new(connect.Error)
	if reason, _ := refusal.Of(err); !errors.As(err, &coded) || reason != refusal.VersionNotActive || coded.Meta().Get(vrunner.DoneHeader) != "2" {
		t.Errorf("v2's stream after the rollback ends with %v, %v", err, coded.Meta())
	}
	// A client that sends everything again does nothing twice.
	for _, id := range []string{"a", "b"} {
		if err := old.Send(importV1(id, "team/again")); err != nil {
			t.Fatal(err)
		}
	}
	res, err := old.CloseAndReceive()
	if err != nil || res.Msg.GetCreated() != 3 || res.Msg.GetExisting() != 2 {
		t.Fatalf("%v, %v", res, err)
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if got := getV1(t, a, fmt.Sprint("projects/p/secrets/", id)).GetOwner(); got != "team/"+id {
			t.Errorf("the owner of %s is %s", id, got)
		}
	}
}

// TestImportIsBounded: a message that is done takes no memory any more, whatever came before it.
func TestImportIsBounded(t *testing.T) {
	t.Parallel()
	f := newFlippable(t)
	const room = 8 << 20
	budget, h := memory.NewBudget(room), f.handler(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := budget.Share(room)
		defer share.End()
		h.ServeHTTP(w, r.WithContext(memory.With(r.Context(), share)))
	}))
	t.Cleanup(srv.Close)
	<-f.seen
	client := secretsv1connect.NewSecretServiceClient(srv.Client(), srv.URL)
	s := client.ImportSecrets(t.Context())
	for i := range 20 {
		if err := s.Send(importV1(fmt.Sprint("s", i%15), "team/a")); err != nil {
			t.Fatal(err)
		}
		awaitV1(t, api{v1: client}, fmt.Sprint("s", i%15))
		for deadline := time.Now().Add(time.Minute); budget.Left() != room; {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are still counted after message %d", room-budget.Left(), i)
			}
			time.Sleep(time.Millisecond)
		}
	}
	if res, err := s.CloseAndReceive(); err != nil || res.Msg.GetCreated() != 15 || res.Msg.GetExisting() != 5 {
		t.Errorf("%v, %v", res, err)
	}
}
