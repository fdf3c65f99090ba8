package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
)

// TestLensLintReadsACollection has the kinds, the lens and the database from a
// configuration, whose endpoint is a variable.
func TestLensLintReadsACollection(t *testing.T) {
	uri, database := mongotest.Database(t)
	c := mongotest.Client(t).Database(database)
	var docs []any
	for i := range 50 {
		docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("p%02d", i)}, {Key: "size", Value: int32(i)}})
	}
	docs = append(docs, bson.D{{Key: "_id", Value: "q"}, {Key: "size", Value: "large"}})
	if _, err := c.Collection("packages").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := `
deployment: services/shop/deployments/eu
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "$(LENS_LINT_URI)", database: ` + database + `}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "$(LENS_LINT_URI)", database: ` + database + `_new}}
kinds:
- {from: packages, to: packages, lens: packages.yaml}
`
	for name, text := range map[string]string{
		"shop.yaml": text, "packages.yaml": "operations:\n  - convert: {field: size, from: int, to: long}\n",
		"other.yaml": strings.ReplaceAll(text, "from: packages", "from: nothing"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("LENS_LINT_URI", uri)
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := cli.Command(nil)
		root.SetOut(&out)
		root.SetErr(io.Discard) // how far it is
		root.SetArgs(append([]string{"lens", "lint", "--json", "--config"}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, tc := range []struct {
		args    []string
		records int64
		fails   string
	}{
		{nil, 51, "lens lint: 1 record fails"},
		{[]string{"--limit", "50"}, 50, ""}, // by _id, so that the last is left out
		{[]string{"--limit", "51", "--random"}, 51, "lens lint: 1 record fails"},
		{[]string{"--limit", "20", "--random", filepath.Join(dir, "packages.yaml")}, 20, "?"},
	} {
		text, err := run(append([]string{filepath.Join(dir, "shop.yaml")}, tc.args...)...)
		var out struct {
			Sample []struct{ Records int64 }
			Laws   []struct{ Tried, Broken int64 }
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(out.Sample) != 1 || out.Sample[0].Records != tc.records || out.Laws[0].Broken > 0 || out.Laws[0].Tried < tc.records-1 {
			t.Errorf("%v: %+v", tc.args, out)
		}
		if tc.fails == "?" {
			continue
		}
		if got := fmt.Sprint(err); got != tc.fails && (err != nil || tc.fails != "") {
			t.Errorf("%v: %v, want %s", tc.args, err, tc.fails)
		}
	}
	if _, err := run(filepath.Join(dir, "other.yaml")); err == nil || !strings.Contains(err.Error(), "has no collection nothing: correct kinds or dbs[0] in ") {
		t.Errorf("a collection that is not there: %v", err)
	}
	// Nothing was written: there is what was there.
	names, err := c.ListCollectionNames(t.Context(), bson.D{})
	if err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestLensLintFindsWhatBreaksIndexes: all records that the indexes of the new version refuse
// are named, by the server's own judgement, and the scratch collections go again.
func TestLensLintFindsWhatBreaksIndexes(t *testing.T) {
	uri, database := mongotest.Database(t)
	c := mongotest.Client(t).Database(database)
	var docs []any
	for i := range 1200 {
		doc := bson.D{{Key: "_id", Value: fmt.Sprintf("s%04d", i)}, {Key: "mail", Value: fmt.Sprintf("m%d", i)}, {Key: "loc", Value: bson.A{float64(i % 90), 5.0}}}
		switch i % 300 {
		case 7:
			doc[2].Value = bson.A{200.0, 95.0}
		case 8:
			doc = append(doc, bson.E{Key: "language", Value: "klingon"})
		case 9:
			doc[1].Value = "m1"
		}
		docs = append(docs, doc)
	}
	if _, err := c.Collection("shops").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	// It is carried over as it is; those that the lens changes are declared.
	if err := c.RunCommand(t.Context(), bson.D{{Key: "createIndexes", Value: "shops"}, {Key: "indexes", Value: bson.A{
		bson.D{{Key: "key", Value: bson.D{{Key: "mail", Value: 1}}}, {Key: "name", Value: "mail_1"}}}}}).Err(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"shops.yaml": "operations:\n  - rename: {from: loc, to: place}\n",
		"shop.yaml": `
deployment: services/shop/deployments/eu
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "$(LENS_LINT_URI)", database: ` + database + `}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "$(LENS_LINT_URI)", database: ` + database + `_new}}
kinds:
- from: shops
  to: shops
  lens: shops.yaml
  indexes:
    shops:
    - {key: {place: 2dsphere}}
    - {key: {mail: text}}
    - {key: {mail: 1}, unique: true, partialFilterExpression: {place: {$exists: true}}}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("LENS_LINT_URI", uri)
	var out bytes.Buffer
	root := cli.Command(nil)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"lens", "lint", "--json", "--indexes", "--config", filepath.Join(dir, "shop.yaml")})
	err := root.ExecuteContext(t.Context())
	if want := "lens lint: 12 records break an index or a validator of the new version"; err == nil || err.Error() != want {
		t.Fatalf("%v, want %s\n%s", err, want, out.String())
	}
	var report struct {
		Refused []struct {
			Reason string
			Names  []string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, r := range report.Refused {
		found[r.Reason] = r.Names
	}
	for reason, at := range map[string]int{
		"error 16755: Can't extract geo keys, field place (index place_2dsphere)": 7,
		"error 17262: language override unsupported":                              8,
		"index mail_1: unique index refuses the record":                           9,
	} {
		var want []string
		for i := at; i < 1200; i += 300 {
			want = append(want, fmt.Sprintf("s%04d", i))
		}
		if fmt.Sprint(found[reason]) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v, of %v", reason, found[reason], want, found)
		}
	}
	if bytes.Contains(out.Bytes(), []byte("klingon")) {
		t.Error("a value is shown")
	}
	names, err := mongotest.Client(t).Database(database+"_new").ListCollectionNames(t.Context(), bson.D{})
	if err != nil || strings.Contains(strings.Join(names, " "), "dbc_lint_") {
		t.Errorf("left %v, %v", names, err)
	}
	if err := mongotest.Client(t).Database(database + "_new").Drop(t.Context()); err != nil {
		t.Error(err)
	}
}
