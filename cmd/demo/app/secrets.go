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
	c := &secretsClient{service: s}
	for _, addr := range servers {
		c.v1 = append(c.v1, secretsv1connect.NewSecretServiceClient(h, "http://"+addr))
		c.v2 = append(c.v2, secretsv2connect.NewSecretServiceClient(h, "http://"+addr))
	}
	return c
}

// read reads one secret, which the ledger knows by its v1 name, through one of the APIs.
func (c *secretsClient) read(ctx context.Context, l *ledger, t *tally, name string, v2 bool) {
	c.readOne(ctx, l, t, name, v2, func(ctx context.Context, s int) (string, http.Header, error) {
		if v2 {
			res, err := c.v2[s].GetSecret(ctx, connect.NewRequest(&secretsv2.GetSecretRequest{Name: newName(name)}))
			if err != nil {
				return "", nil, err
			}
			return printSecretV2(res.Msg.GetSecret()), header(res), nil
		}
		res, err := c.v1[s].GetSecret(ctx, connect.NewRequest(&secretsv1.GetSecretRequest{Name: name}))
		if err != nil {
			return "", nil, err
		}
		return printSecretV1(res.Msg.GetSecret()), header(res), nil
	})
}

// listV1 and listV2 see the secrets of one client through an API at one server.
func (c *secretsClient) listV1(ctx context.Context, server int, project string, see func(name, print string)) error {
	for token := ""; ; {
		res, err := c.v1[server].ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{Parent: project, PageToken: token}))
		if err != nil {
			return fmt.Errorf("list secrets through the v1 API: %w", err)
		}
		for _, s := range res.Msg.GetSecrets() {
			see(s.GetName(), printSecretV1(s))
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

func (c *secretsClient) listV2(ctx context.Context, server int, project string, see func(name, print string)) error {
	parent := secret{project: project}.parentV2()
	for token := ""; ; {
		res, err := c.v2[server].ListSecrets(ctx, connect.NewRequest(&secretsv2.ListSecretsRequest{Parent: parent, PageToken: token}))
		if err != nil {
			return fmt.Errorf("list secrets through the v2 API: %w", err)
		}
		for _, s := range res.Msg.GetSecrets() {
			see(oldName(s.GetName()), printSecretV2(s))
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			return nil
		}
	}
}
