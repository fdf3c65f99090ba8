package secrets

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
	"dbcontroller.dev/vrunner"
)

// nativeV2 serves v2 over v2 data.
type nativeV2 struct{ table[*secretsv2.Secret] }

var _ secretsv2connect.SecretServiceHandler = nativeV2{}

// NativeV2 returns the v2 API over v2 data, and the path to mount it at.
func NativeV2(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	return secretsv2connect.NewSecretServiceHandler(nativeV2{table[*secretsv2.Secret]{
		store: store, pattern: patternV2, check: checkV2,
		fresh:    func() *secretsv2.Secret { return new(secretsv2.Secret) },
		identify: func(s *secretsv2.Secret, name string, revision int64) { s.Name, s.Revision = name, revision },
	}}, opts...)
}

func checkV2(s *secretsv2.Secret) error {
	region := regionOf(s.Name)
	if err := checkExpiry(s.ExpireTime, region); err != nil {
		return err
	}
	if s.OwnerTeam != "" || s.OwnerPerson != "" {
		if err := checkOwner("owner_team", s.OwnerTeam); err != nil {
			return err
		}
		if err := checkOwner("owner_person", s.OwnerPerson); err != nil {
			return err
		}
	}
	if s.RotationDays < 0 || s.RotationDays > maxRotation {
		return listing.Invalid("rotation_days", "is %d, must be 0 to %d", s.RotationDays, maxRotation)
	}
	if err := checkCommon(patternV2, s.Payload, s.Labels, s.Replaces); err != nil {
		return err
	}
	if s.Replaces != "" && regionOf(s.Replaces) != region {
		return listing.Invalid("replaces", "must be a secret of the same region, %s", region)
	}
	return nil
}

// regionOf is the region in a name that was checked.
func regionOf(name string) string { return strings.Split(name, "/")[3] }

func (n nativeV2) CreateSecret(ctx context.Context, req *connect.Request[secretsv2.CreateSecretRequest]) (*connect.Response[secretsv2.CreateSecretResponse], error) {
	s, err := n.create(ctx, req.Msg.GetParent(), req.Msg.GetSecretId(), req.Msg.GetSecret())
	return apiversion.Respond(&secretsv2.CreateSecretResponse{Secret: s}, err)
}

func (n nativeV2) GetSecret(ctx context.Context, req *connect.Request[secretsv2.GetSecretRequest]) (*connect.Response[secretsv2.GetSecretResponse], error) {
	s, err := n.get(ctx, req.Msg.GetName(), req.Msg.GetReadMask())
	return apiversion.Respond(&secretsv2.GetSecretResponse{Secret: s}, err)
}

func (n nativeV2) ListSecrets(ctx context.Context, req *connect.Request[secretsv2.ListSecretsRequest]) (*connect.Response[secretsv2.ListSecretsResponse], error) {
	page, err := n.list(ctx, req.Msg)
	return apiversion.Respond(&secretsv2.ListSecretsResponse{Secrets: page.Items, NextPageToken: page.NextPageToken}, err)
}

func (n nativeV2) UpdateSecret(ctx context.Context, req *connect.Request[secretsv2.UpdateSecretRequest]) (*connect.Response[secretsv2.UpdateSecretResponse], error) {
	s, err := n.update(ctx, req.Msg.GetSecret(), req.Msg.GetUpdateMask(), req.Msg.ExpectedRevision)
	return apiversion.Respond(&secretsv2.UpdateSecretResponse{Secret: s}, err)
}

func (n nativeV2) DeleteSecret(ctx context.Context, req *connect.Request[secretsv2.DeleteSecretRequest]) (*connect.Response[secretsv2.DeleteSecretResponse], error) {
	return apiversion.Respond(&secretsv2.DeleteSecretResponse{}, n.remove(ctx, req.Msg.GetName()))
}

func (n nativeV2) RotateSecret(ctx context.Context, req *connect.Request[secretsv2.RotateSecretRequest]) (*connect.Response[secretsv2.RotateSecretResponse], error) {
	s, err := n.change(ctx, req.Msg.GetName(), nil, func(s *secretsv2.Secret) error {
		s.Payload = req.Msg.GetPayload()
		return nil
	})
	return apiversion.Respond(&secretsv2.RotateSecretResponse{Secret: s}, err)
}

func (n nativeV2) WatchSecrets(ctx context.Context, req *connect.Request[secretsv2.WatchSecretsRequest], out *connect.ServerStream[secretsv2.WatchSecretsResponse]) error {
	return apiversion.CodeError(n.watch(ctx, req.Msg, func(e vrunner.EventType, name string, s *secretsv2.Secret) error {
		return out.Send(&secretsv2.WatchSecretsResponse{Event: secretsv2.WatchSecretsResponse_Event(e), Name: name, Secret: s})
	}))
}
