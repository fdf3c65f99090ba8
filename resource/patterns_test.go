package resource

import (
	"context"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
)

const (
	ofProject      = "projects/{project}/secrets/{secret}"
	ofOrganization = "organizations/{organization}/secrets/{secret}"
	ofFolder       = "projects/{project}/folders/{folder}/secrets/{secret}"
)

// TestSeveralPatterns: resources with parents of several types are one table, in which each parent,
// and all of its type, have a list.
func TestSeveralPatterns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	table := New(sampletest.New(t, "secrets"), Config[*secretsv1.Secret]{Kind: "secrets", Pattern: ofProject, Patterns: []string{ofOrganization, ofFolder}})
	for _, parent := range []string{"projects/a", "organizations/a", "projects/b", "projects/a/folders/secrets", "projects/b/folders/x"} {
		made, err := table.Create(ctx, &secretsv1.CreateSecretRequest{Parent: parent, SecretId: "s", Secret: &secretsv1.Secret{}})
		if err != nil || made.GetName() != parent+"/secrets/s" {
			t.Fatalf("%s: made %v, %v", parent, made, err)
		}
		if got, err := table.Get(ctx, &secretsv1.GetSecretRequest{Name: made.GetName()}); err != nil || got.GetName() != made.GetName() {
			t.Errorf("read %v, %v", got, err)
		}
	}
	for parent, want := range map[string][]string{
		"":                           {"organizations/a", "projects/a/folders/secrets", "projects/a", "projects/b/folders/x", "projects/b"},
		"projects/a":                 {"projects/a"},
		"projects/-":                 {"projects/a", "projects/b"},
		"organizations/-":            {"organizations/a"},
		"organizations/b":            nil,
		"projects/-/folders/x":       {"projects/b/folders/x"},
		"projects/a/folders/secrets": {"projects/a/folders/secrets"},
	} {
		var got []string
		for token := ""; ; {
			page, err := table.List(ctx, &secretsv1.ListSecretsRequest{Parent: parent, PageSize: 1, PageToken: token})
			if err != nil {
				t.Fatalf("%s: %v", parent, err)
			}
			for _, s := range page.Items {
				got = append(got, strings.TrimSuffix(s.GetName(), "/secrets/s"))
			}
			if token = page.NextPageToken; token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("a list of %q is %v, want %v", parent, got, want)
		}
	}
	for _, parent := range []string{"groups/a", "projects", "organizations/a/folders/x", "organizations/a/secrets/s"} {
		_, err := table.List(ctx, &secretsv1.ListSecretsRequest{Parent: parent})
		want(t, err, connect.CodeInvalidArgument, `"`+parent+`" is not projects/{project} or organizations/{organization} or projects/{project}/folders/{folder}`)
		_, err = table.Create(ctx, &secretsv1.CreateSecretRequest{Parent: parent, SecretId: "s", Secret: &secretsv1.Secret{}})
		want(t, err, connect.CodeInvalidArgument, "parent")
		_, err = table.Get(ctx, &secretsv1.GetSecretRequest{Name: parent + "/secrets/s"})
		want(t, err, connect.CodeInvalidArgument, `is not `+ofProject+" or "+ofOrganization)
	}
	_, err := table.Get(ctx, &secretsv1.GetSecretRequest{Name: "organizations/-/secrets/s"})
	want(t, err, connect.CodeInvalidArgument, `the id must not be "-"`)
}

// TestPatternsOfOwners: children and their parents have the same types of parents.
func TestPatternsOfOwners(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	store := sampletest.New(t, "secrets", "books")
	parents := New(store, Config[*secretsv1.Secret]{Kind: "secrets", Patterns: []string{ofProject, ofOrganization}})
	children := New(store, Config[*libraryv1.Book]{Kind: "books", Patterns: []string{ofProject + "/books/{book}", ofOrganization + "/books/{book}"}, Owner: Owner{Table: parents}})
	made, err := parents.Create(ctx, &secretsv1.CreateSecretRequest{Parent: "organizations/o", SecretId: "s", Secret: &secretsv1.Secret{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := children.Insert(ctx, &libraryv1.Book{Name: "organizations/o/secrets/s/books/b"}); err != nil {
		t.Fatal(err)
	}
	after, err := parents.Find(ctx, made.GetName())
	if err != nil || after.GetRevision() == made.GetRevision() {
		t.Errorf("a child leaves its parent at %v, %v", after, err)
	}
	got := panics(t, func() {
		New(store, Config[*libraryv1.Book]{Kind: "books", Pattern: ofProject + "/books/{book}", Owner: Owner{Table: parents}})
	})
	if !strings.Contains(got, "is not one collection and one id below") {
		t.Errorf("panics with %q", got)
	}
}

// TestPatternsAreChecked: a name has one pattern, and a request tells which.
func TestPatternsAreChecked(t *testing.T) {
	t.Parallel()
	s := sampletest.New(t, "secrets")
	for want, patterns := range map[string][]string{
		"are ambiguous: a name has both":               {ofProject, "projects/{owner}/secrets/{secret}"},
		"must end with the same collection and id":     {ofProject, "organizations/{organization}/keys/{secret}"},
		"must end with the same collection and id ":    {ofProject, "organizations/{organization}/secrets/{id}"},
		`the Pattern "secrets/{secret}" has no parent`: {"secrets/{secret}", ofProject},
		`the Pattern "{secret}" has no parent`:         {ofProject, "{secret}"},
		"names of the second begin like names of the":  {ofProject + "/parts/{part}/secrets/{secret}", ofOrganization, ofProject},
		"is not collections and ids in turn":           {ofProject, "organizations"},
	} {
		got := panics(t, func() { New(s, Config[*secretsv1.Secret]{Kind: "secrets", Patterns: patterns}) })
		if !strings.Contains(got, strings.TrimSpace(want)) {
			t.Errorf("%v panics with %q, want %q", patterns, got, want)
		}
	}
	// Those of the message.
	table := New(s, Config[*secretsv1.Secret]{Kind: "secrets"})
	if got := table.pattern.String(); got != ofProject {
		t.Errorf("the message has the pattern %q", got)
	}
	if got := panics(t, func() { New(s, Config[*libraryv1.Book]{Kind: "secrets"}) }); !strings.Contains(got, `the Pattern "" is not`) {
		t.Errorf("a message without a pattern panics with %q", got)
	}
}
