package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
)

// TestSecretsOverFlips keeps one v1 client over three flips of a re-keyed kind, with real
// processes: its stream goes on, its page token stays good, it sees what it wrote, and
// what only v2 knows survives its edits.
func TestSecretsOverFlips(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	newTraffic(ctx, s, 50)
	s.controller("first", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first")
	api, _ := s.server("server", 0).ready(ctx).addresses()
	c := secretClient{t, secretsv1connect.NewSecretServiceClient(s.http, "http://"+api), secretsv2connect.NewSecretServiceClient(s.http, "http://"+api)}

	for i := range 5 {
		_, err := c.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{
			Parent: "projects/p", SecretId: fmt.Sprint("s", i), Secret: &secretsv1.Secret{Owner: "payments/ada", ExpiresAt: int64(i)},
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	stream, err := c.v1.WatchSecrets(watching, connect.NewRequest(&secretsv1.WatchSecretsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close() //nolint:errcheck // it was stopped
	initial := 0
	for stream.Receive() && stream.Msg().GetEvent() == secretsv1.WatchSecretsResponse_EVENT_PUT {
		initial++
	}
	if initial != 5 || stream.Msg().GetEvent() != secretsv1.WatchSecretsResponse_EVENT_CAUGHT_UP {
		t.Fatalf("the watch began with %d secrets and %v, %v", initial, stream.Msg(), stream.Err())
	}
	// told reads the next message, which must be the change that was just made.
	told := func(id, payload string) {
		t.Helper()
		if !stream.Receive() || stream.Msg().GetName() != "projects/p/secrets/"+id || string(stream.Msg().GetSecret().GetPayload()) != payload {
			t.Errorf("watched %v, error %v, want %s with payload %s", stream.Msg(), stream.Err(), id, payload)
		}
	}
	token := c.page(ctx, "", "s4", "s3")

	for i, to := range []string{"v2", "v1", "v2"} {
		s.beginTo(ctx, to)
		s.await(ctx, fmt.Sprintf("flip %d, to %s", i+1, to), flipped(to))
		c.setPayload(ctx, "s1", to)
		told("s1", to)
		c.page(ctx, token, "s2", "s1")
		c.setPayloadByREST(ctx, s.http, "http://"+api+"/v1/projects/p/secrets/s1", to+" by REST")
		told("s1", to+" by REST")
		got, err := c.v2.GetSecret(ctx, connect.NewRequest(&secretsv2.GetSecretRequest{Name: "projects/p/regions/us-west2/secrets/s2"}))
		switch {
		case err != nil:
			t.Errorf("v2 while %s is active: %v", to, err)
		case i > 0 && got.Msg.GetSecret().GetRotationDays() != 30:
			t.Errorf("v1's edits left %v", got.Msg.GetSecret())
		}
		rotate := &secretsv2.UpdateSecretRequest{Secret: &secretsv2.Secret{Name: "projects/p/regions/us-west2/secrets/s2", RotationDays: 30, Payload: []byte("v2's")}}
		_, err = c.v2.UpdateSecret(ctx, connect.NewRequest(rotate))
		switch {
		case to == "v1" && connect.CodeOf(err) != connect.CodeFailedPrecondition:
			t.Errorf("a write through v2 while v1 is active: %v", err)
		case to == "v1":
			c.setPayload(ctx, "s2", "v1's")
			told("s2", "v1's")
		case err != nil:
			t.Error(err)
		default:
			told("s2", "v2's")
		}
	}
}

// secretClient calls both versions of a server's secrets.
type secretClient struct {
	t  *testing.T
	v1 secretsv1connect.SecretServiceClient
	v2 secretsv2connect.SecretServiceClient
}

func (c secretClient) setPayload(ctx context.Context, id, payload string) {
	c.t.Helper()
	if _, err := c.v1.SetPayload(ctx, connect.NewRequest(&secretsv1.SetPayloadRequest{Name: "projects/p/secrets/" + id, Payload: []byte(payload)})); err != nil {
		c.t.Error(err)
	}
}

// setPayloadByREST does it by the path of the method, and reads it by that of the secret.
func (c secretClient) setPayloadByREST(ctx context.Context, client *http.Client, secret, payload string) {
	c.t.Helper()
	body, err := json.Marshal(map[string][]byte{"payload": []byte(payload)})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, call := range []struct {
		method, url string
		body        []byte
	}{{http.MethodPost, secret + ":setPayload", body}, {http.MethodGet, secret, nil}} {
		req, err := http.NewRequestWithContext(ctx, call.method, call.url, bytes.NewReader(call.body))
		if err != nil {
			c.t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			c.t.Fatal(err)
		}
		var got struct {
			Name    string `json:"name"`
			Payload []byte `json:"payload"`
		}
		err = json.NewDecoder(res.Body).Decode(&got)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || got.Name != "projects/p/secrets/s1" || string(got.Payload) != payload {
			c.t.Errorf("%s %s: %s %v %v", call.method, call.url, res.Status, got, err)
		}
	}
}

// page lists two secrets, those that expire last first, and returns the next page's token.
func (c secretClient) page(ctx context.Context, token string, ids ...string) string {
	c.t.Helper()
	res, err := c.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{
		Parent: "projects/p", PageSize: 2, OrderBy: "expires_at desc", Filter: `owner == "payments/ada"`, PageToken: token,
	}))
	if err != nil {
		c.t.Error(err)
		return ""
	}
	var names, want []string
	for _, s := range res.Msg.GetSecrets() {
		names = append(names, s.GetName())
	}
	for _, id := range ids {
		want = append(want, "projects/p/secrets/"+id)
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		c.t.Errorf("listed %v, want %v", names, want)
	}
	return res.Msg.GetNextPageToken()
}
