package secrets

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// nativeV1 serves the v1 methods that are not standard methods of a table.
type nativeV1 struct {
	secretsv1connect.UnimplementedSecretServiceHandler
	secrets *resource.Table[*secretsv1.Secret]
}

// tableV1 returns the table of v1 secrets.
func tableV1(store vrunner.Store) *resource.Table[*secretsv1.Secret] {
	return resource.New(store, resource.Config[*secretsv1.Secret]{Kind: Kind, Sparse: sparseV1, Check: homed(store, checkV1)})
}

// NativeV1 returns the v1 API over v1 data, and its mount path.
func NativeV1(store vrunner.Store, opts ...connect.HandlerOption) (string, http.Handler) {
	table := tableV1(store)
	_, own := secretsv1connect.NewSecretServiceHandler(nativeV1{secrets: table}, opts...)
	return resource.NewHandler(resource.Service{Descriptor: serviceV1, Tables: []resource.Standard{table}, Own: own, Options: opts})
}

func checkV1(_ context.Context, s, _ *secretsv1.Secret) error {
	if err := checkExpiresAt(s.ExpiresAt); err != nil {
		return err
	}
	if s.Owner != "" {
		// Without a slash, person is empty, and checkOwner refuses it.
		team, person, _ := strings.Cut(s.Owner, "/")
		for _, part := range []string{team, person} {
			if err := checkOwner("owner", part); err != nil {
				return err
			}
		}
	}
	return checkCommon(patternV1, s.Payload, s.Labels, s.Replaces, s.Home)
}

func (n nativeV1) SetPayload(ctx context.Context, req *connect.Request[secretsv1.SetPayloadRequest]) (*connect.Response[secretsv1.SetPayloadResponse], error) {
	s, err := n.secrets.Change(ctx, req.Msg, func(s *secretsv1.Secret) error {
		s.Payload = req.Msg.GetPayload()
		return nil
	})
	return apiversion.Respond(&secretsv1.SetPayloadResponse{Secret: s}, err)
}

func (n nativeV1) ListOwners(ctx context.Context, req *connect.Request[secretsv1.ListOwnersRequest]) (*connect.Response[secretsv1.ListOwnersResponse], error) {
	if req.Msg.GetParent() == "" {
		return nil, listing.Invalid("parent", "is missing; it is projects/{project}")
	}
	// The list has no page token, so it must fit into one response.
	owners := map[string]bool{}
	err := n.secrets.Each(ctx, req.Msg.GetParent(), func(_ string, s *secretsv1.Secret) error {
		if s.Owner != "" {
			owners[s.Owner] = true
		}
		return nil
	})
	return apiversion.Respond(&secretsv1.ListOwnersResponse{Owners: slices.Sorted(maps.Keys(owners))}, err)
}

func (n nativeV1) ImportSecrets(ctx context.Context, in *connect.ClientStream[secretsv1.ImportSecretsRequest]) (*connect.Response[secretsv1.ImportSecretsResponse], error) {
	res := &secretsv1.ImportSecretsResponse{}
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
