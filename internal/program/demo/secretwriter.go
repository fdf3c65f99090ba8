package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
)

// secretWriter is one client of the secrets service. Only it writes the secrets of its project. It
// is used by one goroutine.
type secretWriter struct {
	client *secretsClient
	ledger *ledger
	tally  *tally
	ops    *atomic.Int64
	rng    *rand.Rand
	number int

	live  []secret
	dead  []secret // deleted, may be created again
	names int
}

// put creates secrets until there are n, before traffic starts.
func (w *secretWriter) put(ctx context.Context, n int) error {
	for len(w.live) < n {
		s := w.fresh(w.ops.Add(1))
		w.ledger.Begin(s.nameV1(), s.state())
		if _, err := w.client.call(ctx, w.sender(false, createSecret, s)); err != nil {
			return fmt.Errorf("create %s: %w", s.nameV1(), err)
		}
		w.ledger.Ack(s.nameV1())
		w.live = append(w.live, s)
	}
	return nil
}

func (w *secretWriter) fresh(op int64) secret {
	w.names++
	return secret{project: projectOf(w.number), id: fmt.Sprintf("secret-%d", w.names), op: op}
}

// do makes one write, which was due at the given time. It uses the v1 API, and while v2 is active
// also the v2 API.
func (w *secretWriter) do(ctx context.Context, due time.Time) {
	v2 := w.rng.IntN(2) == 0 && w.client.newAPI.enter()
	if v2 {
		defer w.client.newAPI.leave()
	}
	op := w.ops.Add(1)
	switch dice := w.rng.IntN(100); {
	// Keep a few records alive, so that updates and deletes have a target.
	case dice < 20 || len(w.live) < 3:
		s := w.fresh(op)
		if n := len(w.dead); n > 0 && w.rng.IntN(2) == 0 {
			s, w.dead = w.dead[n-1], w.dead[:n-1]
			s.op = op
		}
		if w.run(ctx, due, v2, createSecret, s, s.state()) {
			w.live = append(w.live, s)
		}
	case dice < 35:
		s := taken(w.rng, &w.live)
		// A v1 client cannot create a rotation again, so such a secret stays deleted.
		if w.run(ctx, due, v2, deleteSecret, s, state{}) && s.rotation == 0 {
			w.dead = append(w.dead, s)
		}
	default:
		s := taken(w.rng, &w.live)
		if s.op = op; v2 {
			s.rotation = int32(op % 90)
		}
		if w.run(ctx, due, v2, updateSecret, s, s.state()) {
			w.live = append(w.live, s)
		}
	}
}

// run makes one write and records its outcome.
func (w *secretWriter) run(ctx context.Context, due time.Time, v2 bool, act secretAct, s secret, next state) bool {
	return w.client.write(ctx, w.ledger, w.tally, due, s.nameV1(), v2, next, w.sender(v2, act, s))
}

// secretAct is an operation on a secret.
type secretAct int

const (
	createSecret secretAct = iota + 1
	updateSecret
	deleteSecret
)

func (w *secretWriter) sender(v2 bool, act secretAct, s secret) func(context.Context, int) (http.Header, error) {
	send := sendV1
	if v2 {
		send = sendV2
	}
	return func(ctx context.Context, server int) (http.Header, error) { return send(ctx, w.client, server, act, s) }
}

func sendV1(ctx context.Context, c *secretsClient, server int, act secretAct, s secret) (http.Header, error) {
	switch api := c.v1[server]; act {
	case createSecret:
		return sent(ctx, api.CreateSecret, &secretsv1.CreateSecretRequest{Parent: s.project, SecretId: s.id, Secret: s.v1()})
	case updateSecret:
		return sent(ctx, api.UpdateSecret, &secretsv1.UpdateSecretRequest{
			Secret:     s.v1(),
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"payload", "expires_at", "owner", "labels", "replaces"}},
		})
	case deleteSecret:
		return sent(ctx, api.DeleteSecret, &secretsv1.DeleteSecretRequest{Name: s.nameV1()})
	default:
		return nil, fmt.Errorf("unknown act %d", act)
	}
}

func sendV2(ctx context.Context, c *secretsClient, server int, act secretAct, s secret) (http.Header, error) {
	switch api := c.v2[server]; act {
	case createSecret:
		return sent(ctx, api.CreateSecret, &secretsv2.CreateSecretRequest{Parent: s.parentV2(), SecretId: s.id, Secret: s.v2()})
	case updateSecret:
		return sent(ctx, api.UpdateSecret, &secretsv2.UpdateSecretRequest{
			Secret: s.v2(),
			UpdateMask: &fieldmaskpb.FieldMask{
				Paths: []string{"payload", "expire_time", "owner_team", "owner_person", "labels", "replaces", "rotation_days"},
			},
		})
	case deleteSecret:
		return sent(ctx, api.DeleteSecret, &secretsv2.DeleteSecretRequest{Name: s.nameV2()})
	default:
		return nil, fmt.Errorf("unknown act %d", act)
	}
}

// secretsClient calls the secrets service.
type secretsClient struct {
	*service
	v1 []secretsv1connect.SecretServiceClient
	v2 []secretsv2connect.SecretServiceClient
}

func newSecretsClient(h *http.Client, s *service, servers []string) *secretsClient {
	return &secretsClient{service: s, v1: clientsOf(h, servers, secretsv1connect.NewSecretServiceClient), v2: clientsOf(h, servers, secretsv2connect.NewSecretServiceClient)}
}

// read reads one secret by its v1 name, through one of the APIs.
func (c *secretsClient) read(ctx context.Context, l *ledger, t *tally, name string, v2 bool) {
	c.readOne(ctx, l, t, name, v2, func(ctx context.Context, s int) (string, http.Header, error) {
		if v2 {
			return asked(ctx, c.v2[s].GetSecret, &secretsv2.GetSecretRequest{Name: newName(name)}, func(res *secretsv2.GetSecretResponse) string { return printSecretV2(res.GetSecret()) })
		}
		return asked(ctx, c.v1[s].GetSecret, &secretsv1.GetSecretRequest{Name: name}, func(res *secretsv1.GetSecretResponse) string { return printSecretV1(res.GetSecret()) })
	})
}

// listV1 and listV2 list the secrets of one client through an API of one server.
func (c *secretsClient) listV1(ctx context.Context, server int, project string, see func(name, print string)) error {
	return pages(oldVersion, func(token string) (string, error) {
		res, err := c.v1[server].ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{Parent: project, PageToken: token}))
		if err != nil {
			return "", err
		}
		for _, s := range res.Msg.GetSecrets() {
			see(s.GetName(), printSecretV1(s))
		}
		return res.Msg.GetNextPageToken(), nil
	})
}

func (c *secretsClient) listV2(ctx context.Context, server int, project string, see func(name, print string)) error {
	parent := secret{project: project}.parentV2()
	return pages(newVersion, func(token string) (string, error) {
		res, err := c.v2[server].ListSecrets(ctx, connect.NewRequest(&secretsv2.ListSecretsRequest{Parent: parent, PageToken: token}))
		if err != nil {
			return "", err
		}
		for _, s := range res.Msg.GetSecrets() {
			see(oldName(s.GetName()), printSecretV2(s))
		}
		return res.Msg.GetNextPageToken(), nil
	})
}

// pages lists all pages. list returns the token of the next page.
func pages(api string, list func(token string) (next string, err error)) error {
	token, err := list("")
	for err == nil && token != "" {
		token, err = list(token)
	}
	if err != nil {
		return fmt.Errorf("list secrets through the %s API: %w", api, err)
	}
	return nil
}
