package secrets_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/examples/secrets"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
)

// TestRegionOfAllProjects compares pages of one region with the names sorted out one by
// one, among ids that sort before and after a slash and begin with each other.
func TestRegionOfAllProjects(t *testing.T) {
	t.Parallel()
	ids := []string{"p", "p-", "p0", "p1", "q", "regions", "us-west2"}
	regions := []string{"eu", "us-west", "us-west2", "us-west2-a", "us-west21", "us-west3"}
	rapid.Check(t, func(rt *rapid.T) {
		a, s := v2API(t)
		var want []string
		for _, i := range rapid.SliceOfDistinct(rapid.IntRange(0, len(ids)*len(regions)*2-1), rapid.ID).Draw(rt, "secrets") {
			region := regions[i/2%len(regions)]
			name := fmt.Sprintf("projects/%s/regions/%s/secrets/s%d", ids[i/2/len(regions)], region, i%2)
			s.Put(t, secrets.Kind, bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "revision", Value: int64(1)}})
			if region == "us-west2" {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		req := &secretsv2.ListSecretsRequest{Parent: "projects/-/regions/us-west2", PageSize: int32(rapid.IntRange(1, 4).Draw(rt, "page size"))}
		var got []string
		for {
			res, err := a.v2.ListSecrets(context.Background(), connect.NewRequest(req))
			if err != nil {
				rt.Fatal(err)
			}
			for _, secret := range res.Msg.GetSecrets() {
				got = append(got, secret.GetName())
			}
			if req.PageToken = res.Msg.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			rt.Errorf("listed %v, want %v", got, want)
		}
		for _, parent := range []string{"", "projects/-"} {
			if v1 := listV1(t, a, &secretsv1.ListSecretsRequest{Parent: parent, PageSize: req.GetPageSize()}); len(v1) != len(want) {
				rt.Errorf("v1 lists %v, v2 %v", v1, want)
			}
		}
	})
}

func TestRegionRefused(t *testing.T) {
	t.Parallel()
	a, _ := v2API(t)
	ctx := context.Background()
	for _, parent := range []string{"projects/-", "projects/-/regions/", "projects/-/regions/eu/secrets/s", "projects/-/zones/a", "projects/p/regions/-"} {
		_, err := a.v2.ListSecrets(ctx, connect.NewRequest(&secretsv2.ListSecretsRequest{Parent: parent}))
		sampletest.WantError(t, err, connect.CodeInvalidArgument, "parent")
	}
	_, err := a.v2.CreateSecret(ctx, connect.NewRequest(&secretsv2.CreateSecretRequest{Parent: "projects/-/regions/eu", SecretId: "s", Secret: &secretsv2.Secret{}}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "parent")
	_, err = a.v1.CreateSecret(ctx, connect.NewRequest(&secretsv1.CreateSecretRequest{Parent: "projects/p", SecretId: strings.Repeat("x", 1000), Secret: &secretsv1.Secret{}}))
	sampletest.WantError(t, err, connect.CodeInvalidArgument, "secret_id")
}
