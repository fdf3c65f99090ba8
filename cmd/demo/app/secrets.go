package app

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	secretsv1 "dbcontroller/gen/secrets/v1"
	"dbcontroller/gen/secrets/v1/secretsv1connect"
	secretsv2 "dbcontroller/gen/secrets/v2"
	"dbcontroller/gen/secrets/v2/secretsv2connect"
)

// secretsClient talks to the secrets service.
type secretsClient struct {
	*service
	v1 []secretsv1connect.SecretServiceClient
	v2 []secretsv2connect.SecretServiceClient
}

func newSecretsClient(h *http.Client, s *service, servers []string) *secretsClient {
	return &secretsClient{service: s, v1: clientsOf(h, servers, secretsv1connect.NewSecretServiceClient), v2: clientsOf(h, servers, secretsv2connect.NewSecretServiceClient)}
}

// read reads one secret, which the ledger knows by its v1 name, through one of the APIs.
func (c *secretsClient) read(ctx context.Context, l *ledger, t *tally, name string, v2 bool) {
	c.readOne(ctx, l, t, name, v2, func(ctx context.Context, s int) (string, http.Header, error) {
		if v2 {
			return asked(ctx, c.v2[s].GetSecret, &secretsv2.GetSecretRequest{Name: newName(name)}, func(res *secretsv2.GetSecretResponse) string { return printSecretV2(res.GetSecret()) })
		}
		return asked(ctx, c.v1[s].GetSecret, &secretsv1.GetSecretRequest{Name: name}, func(res *secretsv1.GetSecretResponse) string { return printSecretV1(res.GetSecret()) })
	})
}

// listV1 and listV2 see the secrets of one client through an API at one server.
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

// pages lists page after page; list returns the token of the one that follows.
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
