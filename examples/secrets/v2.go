package secrets

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/gen/secrets/v2/secretsv2connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// nativeV2 serves the v2 methods that are not standard methods of a table.
type nativeV2 struct {
	secretsv2connect.UnimplementedSecretServiceHandler
	secrets *resource.Table[*secretsv2.Secret]
}

// tableV2 returns the table of v2 secrets.
func tableV2(store vrunner.Store) *resource.Table[*secretsv2.Secret] {
	return resource.New(store, resource.Config[*secretsv2.Secret]{Kind: Kind, Sparse: sparseV2, Check: homed(store, checkV2)})
}

// NativeV2 returns the v2 API over v2 data, and its mount path.
func NativeV2(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	table := tableV2(store)
	_, own := secretsv2connect.NewSecretServiceHandler(nativeV2{secrets: table}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: serviceV2, Tables: []resource.Standard{table}, Own: own, Options: opts})
}

func checkV2(_ context.Context, s, _ *secretsv2.Secret) error {
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
	if err := checkCommon(patternV2, s.Payload, s.Labels, s.Replaces, s.Home); err != nil {
		return err
	}
	// v1 shows the secret with a name of its own region, which it could not do for another one.
	if s.Replaces != "" && regionOf(s.Replaces) != region {
		return listing.Invalid("replaces", "must be a secret of the same region, %s", region)
	}
	return nil
}

// regionOf returns the region in a valid name.
func regionOf(name string) string { return strings.Split(name, "/")[3] }

func (n nativeV2) RotateSecret(ctx context.Context, req *connect.Request[secretsv2.RotateSecretRequest]) (*connect.Response[secretsv2.RotateSecretResponse], error) {
	s, err := n.secrets.Change(ctx, req.Msg, func(s *secretsv2.Secret) error {
		s.Payload = req.Msg.GetPayload()
		return nil
	})
	return apiversion.Respond(&secretsv2.RotateSecretResponse{Secret: s}, err)
}

func (n nativeV2) ImportSecrets(ctx context.Context, in *connect.ClientStream[secretsv2.ImportSecretsRequest]) (*connect.Response[secretsv2.ImportSecretsResponse], error) {
	res := &secretsv2.ImportSecretsResponse{}
	for in.Receive() {
		_, err := n.secrets.Create(ctx, in.Msg())
		switch {
		case err == nil:
			res.Created++
		case errors.Is(err, record.ErrExists):
			res.Existing++
		default:
			return nil, apiversion.CodeError(err)
		}
	}
	return apiversion.Respond(res, in.Err())
}
