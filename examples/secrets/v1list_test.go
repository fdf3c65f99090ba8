package secrets_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/sampletest"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
)

// listV1 returns the ids of all pages.
func listV1(t testing.TB, a api, req *secretsv1.ListSecretsRequest) (ids []string) {
	t.Helper()
	for {
		res, err := a.v1.ListSecrets(context.Background(), connect.NewRequest(req))
		if err != nil {
			t.Errorf("%v: %v", req, err)
			return nil
		}
		if size := int(req.GetPageSize()); size > 0 && len(res.Msg.GetSecrets()) > size {
			t.Errorf("a page of %d has %d", size, len(res.Msg.GetSecrets()))
		}
		for _, s := range res.Msg.GetSecrets() {
			ids = append(ids, s.GetName()[strings.LastIndexByte(s.GetName(), '/')+1:])
		}
		if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
			return ids
		}
	}
}

func v1Pages(t *testing.T, a api, _ *sampletest.Store) {
	ctx := context.Background()
	for i := range 7 {
		createV1(t, a, fmt.Sprint("s", i), secretV1())
	}
	for _, project := range []string{"o", "pp"} {
		if _, err := a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/" + project, SecretId: project, Secret: secretV1()})); err != nil {
			t.Fatal(err)
		}
	}
	own := []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}
	for _, size := range []int32{0, 1, 2, 7, 8} {
		if got := listV1(t, a, &secretsv1.ListSecretsRequest{Parent: "projects/p", PageSize: size}); !slices.Equal(got, own) {
			t.Errorf("pages of %d: %v", size, got)
		}
		if got := listV1(t, a, &secretsv1.ListSecretsRequest{PageSize: size}); !slices.Equal(got, append(append([]string{"o"}, own...), "pp")) {
			t.Errorf("pages of %d of all projects: %v", size, got)
		}
	}
	res, err := a.v1.ListSecrets(ctx, connect.NewRequest(&secretsv1.ListSecretsRequest{Parent: "projects/p", PageSize: 2}))
	if err != nil {
		t.Fatal(err)
	}
	// A token goes with the question that it was made for.
	for _, other := range []*secretsv1.ListSecretsRequest{
		{Parent: "projects/o"}, {Parent: "projects/p", Filter: `owner == "a/b"`}, {Parent: "projects/p", OrderBy: "expires_at"},
	} {
		other.PageToken = res.Msg.GetNextPageToken()
		_, err := a.v1.ListSecrets(ctx, connect.NewRequest(other))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "page_token")
	}
}

// seedV1 makes secrets that filters and orders can tell apart.
func seedV1(t testing.TB, a api) {
	for id, s := range map[string]*secretsv1.Secret{
		"a": {Owner: "payments/ada", ExpiresAt: 100, Labels: map[string]string{"env": "prod"}, Replaces: "projects/p/secrets/z"},
		"b": {Owner: "payments/bob", ExpiresAt: 200, Labels: map[string]string{"env": "test", "tier": "1"}},
		"c": {Owner: "search/ada", ExpiresAt: 300, Replaces: "projects/q/secrets/z"},
		"d": {Owner: "search/cy", ExpiresAt: 300, Labels: map[string]string{"env": "prod"}},
		"e": {},
	} {
		createV1(t, a, id, s)
	}
}

func v1Filters(t *testing.T, a api, _ *sampletest.Store) {
	seedV1(t, a)
	for filter, want := range map[string]string{
		`owner == "payments/ada"`:                        "a",
		`owner != "payments/ada"`:                        "b c d e",
		`owner in ["payments/bob", "search/cy"]`:         "b d",
		`!(owner in ["payments/bob", "search/cy"])`:      "a c e",
		`owner.startsWith("payments/")`:                  "a b",
		`owner == ""`:                                    "e",
		`owner != ""`:                                    "a b c d",
		`has(owner)`:                                     "a b c d",
		`owner in ["", "search/ada"]`:                    "c e",
		`owner == "ada"`:                                 "",
		`owner.startsWith("pay")`:                        "a b",
		`owner.startsWith("search/a")`:                   "c",
		`owner.startsWith("/")`:                          "",
		`owner.startsWith("a/b/")`:                       "",
		`owner.startsWith("")`:                           "a b c d e",
		`expires_at == 300`:                              "c d",
		`expires_at != 300`:                              "a b e",
		`expires_at > 100 && expires_at <= 300`:          "b c d",
		`expires_at >= 300 || owner == "payments/ada"`:   "a c d",
		`expires_at < 200`:                               "a e",
		`expires_at in [100, 200]`:                       "a b",
		`expires_at == 0`:                                "e",
		`has(expires_at)`:                                "a b c d",
		`!has(expires_at)`:                               "e",
		`expires_at in [0, 100]`:                         "a e",
		`expires_at >= 0`:                                "a b c d e",
		`expires_at <= 0`:                                "e",
		`expires_at < 0`:                                 "",
		`!(expires_at < 200)`:                            "b c d",
		`!(expires_at > 100 || expires_at == 0)`:         "a",
		`expires_at > 0`:                                 "a b c d",
		`labels.env == "prod"`:                           "a d",
		`labels["env"] == "prod"`:                        "a d",
		`has(labels.tier)`:                               "b",
		`"env" in labels`:                                "a b d",
		`replaces == "projects/p/secrets/z"`:             "a",
		`replaces.startsWith("projects/q/")`:             "c",
		`replaces == ""`:                                 "b d e",
		`has(replaces)`:                                  "a c",
		`replaces in ["", "projects/q/secrets/z"]`:       "b c d e",
		`replaces == "z"`:                                "",
		`name == "projects/p/secrets/b"`:                 "b",
		`name in ["projects/p/secrets/c"]`:               "c",
		`name.startsWith("projects/p/secrets/")`:         "a b c d e",
		`!(owner.startsWith("search/")) && !has(labels)`: "e",
		`revision > 0`:                                   "a b c d e",
		"":                                               "a b c d e",
	} {
		t.Run(filter, func(t *testing.T) {
			if got := strings.Join(listV1(t, a, &secretsv1.ListSecretsRequest{Parent: "projects/p", Filter: filter, PageSize: 2}), " "); got != want {
				t.Errorf("listed %q, want %q", got, want)
			}
		})
	}
}

// v1Inexpressible: what v2 cannot be asked is right over v1 data, and over v2 data an error
// that names the field, never another answer.
func v1Inexpressible(t *testing.T, a api, _ *sampletest.Store) {
	seedV1(t, a)
	for _, tc := range []struct {
		req         *secretsv1.ListSecretsRequest
		want, field string
	}{
		{&secretsv1.ListSecretsRequest{Filter: `name.startsWith("projects/p/secrets/d")`}, "d", "name"},
		{&secretsv1.ListSecretsRequest{Filter: `name > "projects/p/secrets/c"`}, "d e", "name"},
		{&secretsv1.ListSecretsRequest{Filter: `owner > "payments/bob"`}, "c d", "owner"},
		{&secretsv1.ListSecretsRequest{Filter: `owner.contains("s/")`}, "a b", "owner"},
		{&secretsv1.ListSecretsRequest{Filter: `replaces > "projects/p"`}, "a c", "replaces"},
		{&secretsv1.ListSecretsRequest{OrderBy: "owner"}, "e a b c d", "owner"},
		{&secretsv1.ListSecretsRequest{OrderBy: "replaces desc"}, "c a b d e", "replaces"},
	} {
		res, err := a.v1.ListSecrets(context.Background(), connect.NewRequest(tc.req))
		if err != nil {
			sampletest.WantError(t, err, connect.CodeInvalidArgument, tc.field)
			continue
		}
		var ids []string
		for _, s := range res.Msg.GetSecrets() {
			ids = append(ids, s.GetName()[len("projects/p/secrets/"):])
		}
		if strings.Join(ids, " ") != tc.want {
			t.Errorf("%v: %v, want %s", tc.req, ids, tc.want)
		}
	}
}

func v1FiltersRefused(t *testing.T, a api, _ *sampletest.Store) {
	seedV1(t, a)
	for filter, want := range map[string]string{
		`expire_time > 5`:    "expire_time",
		`rotation_days == 0`: "rotation_days",
		`owner == 5`:         "owner",
		`owner == "a`:        "filter",
		`owner`:              "filter",
	} {
		_, err := a.v1.ListSecrets(context.Background(), connect.NewRequest(&secretsv1.ListSecretsRequest{Filter: filter}))
		t.Run(filter, func(t *testing.T) { sampletest.WantError(t, err, connect.CodeInvalidArgument, "filter", want) })
	}
}

func v1Order(t *testing.T, a api, _ *sampletest.Store) {
	seedV1(t, a)
	for order, want := range map[string]string{
		"expires_at":      "e a b c d",
		"expires_at desc": "c d b a e",
		"name desc":       "e d c b a",
		"":                "a b c d e",
	} {
		if got := strings.Join(listV1(t, a, &secretsv1.ListSecretsRequest{Parent: "projects/p", OrderBy: order, PageSize: 2}), " "); got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
	_, err := a.v1.ListSecrets(context.Background(), connect.NewRequest(&secretsv1.ListSecretsRequest{OrderBy: "expire_time"}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "order_by", "expire_time")
}
