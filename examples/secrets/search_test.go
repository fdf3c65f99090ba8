package secrets_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
)

// searched is an API over data with an index.
func searched(t *testing.T, version string) api {
	t.Helper()
	s := sampletest.New(t, secrets.Kind)
	if version == secrets.V1 {
		return serve(t, secrets.StackV1(withSearch(t, s, map[string][]string{secrets.Kind: secrets.SearchedV1()}), nil))
	}
	return serve(t, secrets.StackV2(withSearch(t, s, map[string][]string{secrets.Kind: secrets.SearchedV2()})))
}

// idsOf returns the last parts of names, sorted.
func idsOf[M interface{ GetName() string }](found []M) []string {
	ids := []string{}
	for _, s := range found {
		ids = append(ids, s.GetName()[strings.LastIndexByte(s.GetName(), '/')+1:])
	}
	slices.Sort(ids)
	return ids
}

// TestSearchV1: v1 clients find the same secrets over the data of either version.
func TestSearchV1(t *testing.T) {
	t.Parallel()
	for _, version := range []string{secrets.V1, secrets.V2} {
		t.Run("over "+version, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			a := searched(t, version)
			for id, s := range map[string]*secretsv1.Secret{
				"one":   {Owner: "payments/ada", Labels: map[string]string{"env": "production", "zone": "a-1"}, ExpiresAt: 5},
				"two":   {Owner: "payments/bob", Labels: map[string]string{"env": "test"}},
				"three": {Owner: "search/ada", Payload: []byte("hidden")},
				"four":  {},
			} {
				createV1(t, a, id, s)
			}
			if version == secrets.V2 {
				createV2(t, a, "eu", "elsewhere", &secretsv2.Secret{OwnerTeam: "payments", OwnerPerson: "ada"})
			}
			search := func(req *secretsv1.SearchSecretsRequest) ([]string, error) {
				res, err := a.v1.SearchSecrets(ctx, connect.NewRequest(req))
				if err != nil {
					return nil, err
				}
				return idsOf(res.Msg.GetSecrets()), nil
			}
			for query, want := range map[string][]string{
				"":                      {"four", "one", "three", "two"},
				"payments":              {"one", "two"},
				"payments/ada":          {"one"},
				`"payments/ada"`:        {"one"},
				"ada -search":           {"one"},
				"PAY*":                  {"one", "two"},
				"labels:production":     {"one"},
				"labels:a-1":            {"one"},
				"-labels:test payments": {"one"},
				"name:three":            {"three"},
				"four":                  {"four"},
				"hidden":                {},
				"nothing":               {},
			} {
				if got, err := search(&secretsv1.SearchSecretsRequest{Query: query}); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: %v %v, want %v", query, got, err, want)
				}
				if got, err := search(&secretsv1.SearchSecretsRequest{Query: query, Parent: "projects/p", OrderBy: "name"}); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s of a project, by name: %v %v, want %v", query, got, err, want)
				}
			}
			if got, err := search(&secretsv1.SearchSecretsRequest{Query: "payments", Filter: "expires_at > 0"}); err != nil || !slices.Equal(got, []string{"one"}) {
				t.Errorf("with a filter: %v %v", got, err)
			}
			if got, err := search(&secretsv1.SearchSecretsRequest{Parent: "projects/q"}); err != nil || len(got) > 0 {
				t.Errorf("another project: %v %v", got, err)
			}
			// Over v2 the owner is in two fields, so its field cannot be searched there.
			got, err := search(&secretsv1.SearchSecretsRequest{Query: "owner:payments"})
			if version == secrets.V1 && !slices.Equal(got, []string{"one", "two"}) {
				t.Errorf("by the owner: %v %v", got, err)
			} else if version == secrets.V2 {
				sampletest.WantError(t, err, connect.CodeInvalidArgument, "query: owner cannot be searched in this version")
			}
			res, err := a.v1.SearchSecrets(ctx, connect.NewRequest(&secretsv1.SearchSecretsRequest{Query: "one", ReadMask: &fieldmaskpb.FieldMask{Paths: []string{"owner"}}}))
			if err != nil || len(res.Msg.GetSecrets()) != 1 || res.Msg.GetSecrets()[0].GetOwner() != "payments/ada" || res.Msg.GetSecrets()[0].GetExpiresAt() != 0 {
				t.Errorf("with a mask: %v %v", res, err)
			}
		})
	}
}

// TestSearchPages: pages by name have each secret once, and the best come first without an order.
func TestSearchPages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := searched(t, secrets.V2)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		createV2(t, a, "us-west2", id, &secretsv2.Secret{OwnerTeam: "team", OwnerPerson: "ada"})
		createV2(t, a, "eu", id, &secretsv2.Secret{OwnerTeam: "team", OwnerPerson: "ada"})
	}
	createV2(t, a, "us-west2", "best", &secretsv2.Secret{OwnerTeam: "team", OwnerPerson: "ada", Labels: map[string]string{"a": "ada ada ada ada"}})
	best, err := a.v2.SearchSecrets(ctx, connect.NewRequest(&secretsv2.SearchSecretsRequest{Query: "labels:ada", PageSize: 1}))
	if err != nil || len(best.Msg.GetSecrets()) != 1 || best.Msg.GetNextPageToken() != "" {
		t.Errorf("the best: %v %v", best, err)
	}
	for name, page := range map[string]func(token string) (ids []string, next string, err error){
		"v1 over v2": func(token string) ([]string, string, error) {
			res, err := a.v1.SearchSecrets(ctx, connect.NewRequest(&secretsv1.SearchSecretsRequest{Query: "ada", OrderBy: "name", PageSize: 2, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			return idsOf(res.Msg.GetSecrets()), res.Msg.GetNextPageToken(), nil
		},
		"v2": func(token string) ([]string, string, error) {
			res, err := a.v2.SearchSecrets(ctx, connect.NewRequest(&secretsv2.SearchSecretsRequest{Query: "ada", Parent: "projects/-/regions/us-west2", OrderBy: "name", PageSize: 2, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			return idsOf(res.Msg.GetSecrets()), res.Msg.GetNextPageToken(), nil
		},
	} {
		var got []string
		for token, n := "", 0; n == 0 || token != ""; n++ {
			ids, next, err := page(token)
			if err != nil || n > 20 {
				t.Fatalf("%s: page %d: %v", name, n, err)
			}
			got, token = append(got, ids...), next
		}
		if want := []string{"a", "b", "best", "c", "d", "e"}; !slices.Equal(got, want) {
			t.Errorf("%s: pages have %v, want %v", name, got, want)
		}
	}
}

// TestSearchRefuses says what is wrong with a request.
func TestSearchRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a := searched(t, secrets.V2)
	for reason, req := range map[string]*secretsv2.SearchSecretsRequest{
		"query: has a quote without its end":                     {Query: `"open`},
		"query: has a condition without a word":                  {Query: "a :"},
		"query: payload cannot be searched in this version":      {Query: "payload:a"},
		"query: has more than 32 conditions":                     {Query: strings.Repeat("a ", 33)},
		"query: has 2049 bytes, at most 2048 are allowed":        {Query: strings.Repeat("a", 2049)},
		"order_by: must be name, or empty for the best results":  {OrderBy: "revision"},
		"page_token: is not a token of this service":             {PageToken: "x"},
		"page_size: is -1":                                       {PageSize: -1},
		`parent: "p" is not projects/{project}/regions/{region}`: {Parent: "p"},
	} {
		_, err := a.v2.SearchSecrets(ctx, connect.NewRequest(req))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, reason)
	}
	plain, _ := v2API(t)
	_, err := plain.v2.SearchSecrets(ctx, connect.NewRequest(&secretsv2.SearchSecretsRequest{}))
	sampletest.WantError(t, err, connect.CodeUnimplemented, "the server has no index of it")
	_, err = plain.v1.SearchSecrets(ctx, connect.NewRequest(&secretsv1.SearchSecretsRequest{}))
	sampletest.WantError(t, err, connect.CodeUnimplemented, "the server has no index of it")
}
