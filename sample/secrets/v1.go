package secrets

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/vrunner"
)

// nativeV1 serves v1 over v1 data.
type nativeV1 struct{ table[*secretsv1.Secret] }

var _ secretsv1connect.SecretServiceHandler = nativeV1{}

// NativeV1 returns the v1 API over v1 data, and the path to mount it at.
func NativeV1(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return secretsv1connect.NewSecretServiceHandler(nativeV1{table[*secretsv1.Secret]{
		store: store, pattern: patternV1, check: checkV1,
		fresh:    func() *secretsv1.Secret { return new(secretsv1.Secret) },
		identify: func(s *secretsv1.Secret, name string, revision int64) { s.Name, s.Revision = name, revision },
	}}, opts...)
}

func checkV1(s *secretsv1.Secret) error {
	if err := checkExpiresAt(s.ExpiresAt); err != nil {
		return err
	}
	if s.Owner != "" {
		team, person, _ := strings.Cut(s.Owner, "/")
		for _, part := range []string{team, person} {
			if err := checkOwner("owner", part); err != nil {
				return err
			}
		}
	}
	return checkCommon(patternV1, s.Payload, s.Labels, s.Replaces)
}

func (n nativeV1) CreateSecret(ctx context.Context, req *connect.Request[secretsv1.CreateSecretRequest]) (*connect.Response[secretsv1.CreateSecretResponse], error) {
	s, err := n.create(ctx, req.Msg.GetParent(), req.Msg.GetSecretId(), req.Msg.GetSecret())
	return apiversion.Respond(&secretsv1.CreateSecretResponse{Secret: s}, err)
}

func (n nativeV1) GetSecret(ctx context.Context, req *connect.Request[secretsv1.GetSecretRequest]) (*connect.Response[secretsv1.GetSecretResponse], error) {
	s, err := n.get(ctx, req.Msg.GetName(), req.Msg.GetReadMask())
	return apiversion.Respond(&secretsv1.GetSecretResponse{Secret: s}, err)
}

func (n nativeV1) ListSecrets(ctx context.Context, req *connect.Request[secretsv1.ListSecretsRequest]) (*connect.Response[secretsv1.ListSecretsResponse], error) {
	page, err := n.list(ctx, req.Msg)
	return apiversion.Respond(&secretsv1.ListSecretsResponse{Secrets: page.Items, NextPageToken: page.NextPageToken}, err)
}

func (n nativeV1) UpdateSecret(ctx context.Context, req *connect.Request[secretsv1.UpdateSecretRequest]) (*connect.Response[secretsv1.UpdateSecretResponse], error) {
	s, err := n.update(ctx, req.Msg.GetSecret(), req.Msg.GetUpdateMask(), req.Msg.ExpectedRevision)
	return apiversion.Respond(&secretsv1.UpdateSecretResponse{Secret: s}, err)
}

func (n nativeV1) DeleteSecret(ctx context.Context, req *connect.Request[secretsv1.DeleteSecretRequest]) (*connect.Response[secretsv1.DeleteSecretResponse], error) {
	return apiversion.Respond(&secretsv1.DeleteSecretResponse{}, n.remove(ctx, req.Msg.GetName()))
}

func (n nativeV1) SetPayload(ctx context.Context, req *connect.Request[secretsv1.SetPayloadRequest]) (*connect.Response[secretsv1.SetPayloadResponse], error) {
	s, err := n.change(ctx, req.Msg.GetName(), nil, func(s *secretsv1.Secret) error {
		s.Payload = req.Msg.GetPayload()
		return nil
	})
	return apiversion.Respond(&secretsv1.SetPayloadResponse{Secret: s}, err)
}

func (n nativeV1) ListOwners(ctx context.Context, req *connect.Request[secretsv1.ListOwnersRequest]) (*connect.Response[secretsv1.ListOwnersResponse], error) {
	if req.Msg.GetParent() == "" {
		return nil, listing.Invalid("parent", "is missing; it is %s", patternV1.parent())
	}
	in, err := n.pattern.scope(req.Msg.GetParent())
	if err != nil {
		return nil, err
	}
	owners := map[string]bool{}
	err = n.each(ctx, in, func(_ string, s *secretsv1.Secret) error {
		if s.Owner != "" {
			owners[s.Owner] = true
		}
		return nil
	})
	return apiversion.Respond(&secretsv1.ListOwnersResponse{Owners: slices.Sorted(maps.Keys(owners))}, err)
}

func (n nativeV1) WatchSecrets(ctx context.Context, req *connect.Request[secretsv1.WatchSecretsRequest], out *connect.ServerStream[secretsv1.WatchSecretsResponse]) error {
	return apiversion.CodeError(n.watch(ctx, req.Msg, func(e vrunner.EventType, name string, s *secretsv1.Secret) error {
		return out.Send(&secretsv1.WatchSecretsResponse{Event: secretsv1.WatchSecretsResponse_Event(e), Name: name, Secret: s})
	}))
}
