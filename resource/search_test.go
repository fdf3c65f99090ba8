package resource

import (
	"context"
	"strings"
	"testing"

	"dbcontroller.dev/examples/sampletest"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/record"
)

// found is a store with an index that has names in this order, the best first.
type found struct {
	*sampletest.Store
	names []string
}

func (found) Searched(string, string) bool { return true }

func (f found) Search(_ context.Context, req record.SearchRequest) (page record.SearchPage, err error) {
	for _, name := range f.names {
		if strings.HasPrefix(name, req.Prefix) && (req.Limit == 0 || len(page.Names) < req.Limit) {
			page.Names = append(page.Names, name)
		}
	}
	return page, nil
}

// TestSearchBehindOtherZones: better results outside of the range do not hide those in it.
func TestSearchBehindOtherZones(t *testing.T) {
	t.Parallel()
	s := found{Store: sampletest.New(t, "secrets")}
	table := New(s.Store, Config[*secretsv1.Secret]{Kind: "secrets", Pattern: "projects/{project}/zones/{zone}/secrets/{secret}"})
	for _, parent := range []string{"projects/p/zones/a", "projects/q/zones/a", "projects/q/zones/b"} {
		m, err := table.Create(t.Context(), &secretsv1.CreateSecretRequest{Parent: parent, SecretId: "s", Secret: &secretsv1.Secret{}})
		if err != nil {
			t.Fatal(err)
		}
		s.names = append(s.names, m.GetName())
	}
	table.store = s
	page, err := table.Search(t.Context(), &secretsv1.SearchSecretsRequest{Parent: "projects/-/zones/b", Query: "s", PageSize: 1})
	if err != nil || len(page.Items) != 1 || page.Items[0].GetName() != "projects/q/zones/b/secrets/s" {
		t.Errorf("%v %v", page.Items, err)
	}
}
