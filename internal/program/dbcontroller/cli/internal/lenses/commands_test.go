package lenses_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/lenses"
	"dbcontroller.dev/transform/lens"
)

const (
	packagesLens   = "../../../../../../examples/packages/packages.yaml"
	packagesSample = "../../../../../../examples/packages/packages.jsonl.gz"
	secretsLens    = "../../../../../../examples/secrets/secrets.yaml"
)

// runLens executes a line of lens commands with a standard input.
func runLens(t *testing.T, stdin, line string, options ...lens.Option) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	root := cli.Command(nil)
	if len(options) > 0 {
		for _, c := range root.Commands() {
			if c.Name() == "lens" {
				root.RemoveCommand(c)
			}
		}
		group := &cobra.Command{Use: "lens"}
		group.AddCommand(lenses.Commands(options...)...)
		root.AddCommand(group)
	}
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(io.Discard) // how far it is, on a slow machine
	root.SetArgs(append([]string{"lens"}, strings.Fields(line)...))
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// rates differ from run to run.
var rates = regexp.MustCompile(`[0-9,]+ records a second|(PerSecond|"seconds)": [0-9.e+-]+`)

func fixedRates(text string) string {
	return rates.ReplaceAllStringFunc(text, func(s string) string {
		if i := strings.Index(s, `": `); i >= 0 {
			return s[:i] + `": 0`
		}
		return "N records a second"
	})
}

// forgetful is a hook that breaks laws: what it makes changes from call to call. Up and
// Down each call the other to see that the value comes back, and there it does.
func forgetful() lens.Option {
	calls, within, mark := 0, "", ""
	text := func(s string) []bson.RawValue {
		return []bson.RawValue{{Type: bson.TypeString, Value: bsoncore.AppendString(nil, s)}}
	}
	return lens.WithHooks(lens.Hooks{"forgetful": {
		Up: func(v []bson.RawValue) ([]bson.RawValue, error) {
			if within == "down" {
				within = ""
				return text(v[0].StringValue() + mark), nil
			}
			calls, within = calls+1, "up"
			return text(v[0].StringValue() + strings.Repeat("!", calls)), nil
		},
		Down: func(v []bson.RawValue) ([]bson.RawValue, error) {
			all := v[0].StringValue()
			plain := strings.TrimRight(all, "!")
			if within == "up" {
				within = ""
			} else {
				within, mark = "down", all[len(plain):]
			}
			return text(plain), nil
		},
	}})
}

// TestLensOutputIsAsReviewed compares all forms of output with goldens.
func TestLensOutputIsAsReviewed(t *testing.T) {
	t.Parallel()
	// As Mongoose writes subdocuments: their _id is not the first field.
	const innerIDs = "testdata/carts.yaml testdata/cartids.yaml --sample carts=testdata/carts.json --sample cartids=testdata/cartids.json"
	const several = "testdata/orders.yaml testdata/items.yaml --sample orders=testdata/orders.json --sample ratings=testdata/ratings.json --sample items=testdata/items.json"
	for _, tc := range []struct {
		name, line, stdin string
		err               string
		options           []lens.Option
	}{
		{name: "lint-packages", line: "lint " + packagesLens + " --limit 2000 --sample " + packagesSample},
		{name: "lint-secrets", line: "lint " + secretsLens + " --sample testdata/secrets.json",
			err: "lens lint: 1 record fails"},
		{name: "lint-several", line: "lint " + several, err: "lens lint: 6 records fail; 1 key collides"},
		{name: "lint-json", line: "lint --json " + several, err: "lens lint: 6 records fail; 1 key collides"},
		{name: "lint-twice", line: "lint testdata/nothing.yaml --sample -", stdin: `{"_id": "a"} {"_id": "a"}`, err: "lens lint: 1 key collides"},
		// MongoDB's index takes each of these pairs for one _id.
		{name: "lint-equal-ids", line: "lint testdata/nothing.yaml --sample -",
			stdin: `{"_id": "a"} {"_id": {"$symbol": "a"}} {"_id": 1} {"_id": {"$numberDouble": "1.0"}} {"_id": {"$symbol": "b"}}`, err: "lens lint: 2 keys collide"},
		{name: "lint-no-sample", line: "lint testdata/orders.yaml"},
		{name: "lint-wrong", line: "lint testdata/bad.yaml testdata/orders.yaml", err: "lens lint: 3 errors in testdata/bad.yaml"},
		{name: "lint-wrong-and-none", line: "lint --json none.yaml testdata/bad2.yaml testdata/bad.yaml", err: "lens lint: 4 errors in none.yaml and 1 more"},
		{name: "lint-wrong-json", line: "lint --json testdata/bad2.yaml", err: "lens lint: 1 error in testdata/bad2.yaml"},
		{name: "lint-broken", line: "lint testdata/broken.yaml --sample testdata/broken.json",
			err: "lens lint: broken: get-put, put-get, stable", options: []lens.Option{forgetful()}},
		{name: "try-secret", line: "try " + secretsLens, stdin: secretRecord},
		{name: "try-json", line: "try --json testdata/orders.yaml --with ratings=testdata/ratings1.json", stdin: orderRecord},
		{name: "try-have", line: "try testdata/orders.yaml --over --have testdata/held.json", stdin: `{"_id": "orders/2", "legacy": "x"}`},
		{name: "try-fails", line: "try " + packagesLens, stdin: `{"_id": "a", "priority": "none"}`,
			err: `lens try: up: convert priority by table: priority is "none" (string), which the table lacks; it has "required", "important", "standard", "optional", "extra"`},
		{name: "try-fails-json", line: "try --json " + packagesLens, stdin: `{"_id": "a", "priority": "none"}`,
			err: `lens try: up: convert priority by table: priority is "none" (string), which the table lacks; it has "required", "important", "standard", "optional", "extra"`},
		{name: "try-down", line: "try --down testdata/items.yaml", stdin: `{"_id": "items/1", "region": "a", "price": "5"}`},
		{name: "lint-inner-ids", line: "lint " + innerIDs},
		{name: "try-inner-ids", line: "try testdata/carts.yaml", stdin: cartRecord},
		{name: "try-inner-object-ids", line: "try testdata/cartids.yaml", stdin: cartOfObjectIDs},
		{name: "try-symbols", line: "try testdata/carts.yaml", stdin: cartOfSymbols},
		{name: "diff-inner-ids", line: "diff --show 1 " + innerIDs},
		{name: "diff-packages", line: "diff " + packagesLens + " --limit 200 --show 1 --sample " + packagesSample},
		{name: "diff-several", line: "diff --show 1 " + several, err: "lens diff: 6 records fail: 'dbcontroller lens lint' shows why"},
		{name: "diff-json", line: "diff --json --show 1 testdata/items.yaml --sample -", stdin: `{"_id": "regions/a/items/1", "price": 5}`},
		{name: "diff-nothing", line: "diff testdata/nothing.yaml --sample -", stdin: `{"_id": 1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			out, err := runLens(t, tc.stdin, tc.line, tc.options...)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.err {
				t.Errorf("error %q, want %q", got, tc.err)
			}
			if strings.Contains(tc.line, "--json") && !json.Valid([]byte(out)) {
				t.Error("it is no JSON")
			}
			clitest.Golden(t, filepath.Join("testdata", tc.name+".txt"), fixedRates(out))
		})
	}
}

const (
	secretRecord    = `{"_id":"projects/p1/secrets/db","name":"projects/p1/secrets/db","revision":{"$numberLong":"3"},"expires_at":{"$numberLong":"1767225600"},"owner":"storage/kim"}`
	cartOfObjectIDs = `{"_id":{"$oid":"655f1e5e0000000000000001"},"lines":[{"sku":"a","_id":{"$oid":"655f1e5e0000000000000011"}},{"_id":{"$oid":"655f1e5e0000000000000012"},"sku":"b"}]}`
	cartOfSymbols   = `{"_id":{"$symbol":"carts/1"},"lines":[{"sku":"a","_id":{"$symbol":"l1"}},{"_id":{"$symbol":"l2"},"sku":"b"}]}`
	cartRecord      = `{"_id":"carts/1","lines":[{"sku":"a","_id":"l1"},{"_id":"l2","sku":"b"},{"sku":"c","n":2,"_id":"l3","tail":true}]}`
	orderRecord     = `{"_id":"orders/1","legacy":"x","lines":[{"sku":"a","n":1},{"sku":"b","n":{"$numberLong":"2"}}]}`
)

func TestLensSchemaIsTheFormats(t *testing.T) {
	t.Parallel()
	out, err := runLens(t, "", "schema")
	if err != nil || out != string(lens.Schema()) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestLensBadInputIsOneClearLine covers what is not a finding but a wrong call.
func TestLensBadInputIsOneClearLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	noKinds := filepath.Join(dir, "nokinds.yaml")
	if err := os.WriteFile(noKinds, []byte(strings.TrimSuffix(strings.TrimSpace(clitest.KindsConfig), "kinds:")), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "shop.yaml")
	if err := os.WriteFile(config, []byte(clitest.KindsConfig+"- {from: items, to: items, lens: items.yaml}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "items.yaml"), []byte("operations: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	const items, orders = "testdata/items.yaml", "testdata/orders.yaml"
	for _, tc := range []struct{ line, stdin, want string }{
		{"", "", "lens: no object given: use 'dbcontroller lens lint'"},
		{"check", "", `lens: unknown object "check": use 'dbcontroller lens lint'`},
		{"lint", "", "no lens given: give FILE, or --config FILE for the lenses of its kinds"},
		{"lint none.yaml", "", "open none.yaml: no such file or directory"},
		{"lint " + orders + " --sample x.json", "", "--sample x.json: give the kind, as KIND=x.json; the kinds are: orders, ratings"},
		{"lint " + items + " --sample none.json", "", "sample: open none.json: no such file or directory"},
		{"lint " + items + " --sample - --sample -", "", "--sample -: the kind items, or standard input, is given twice"},
		{"lint " + items + " --sample - --new-sample -", "", "--sample -: the kind items, or standard input, is given twice"},
		{"lint " + orders + " --new-sample x.json", "", "--new-sample x.json: give the kind, as KIND=x.json; the kinds are: orders, lines"},
		{"lint " + items + " --sample mongodb://u:pw@h/", "", "--sample reads files; for a collection give --config FILE, so that the command line has no secret"},
		{"lint " + items + " --sample -", "[]", "standard input: it is one JSON array; give one object for each record, as mongoexport writes without --jsonArray"},
		{"lint " + items + " --sample -", `{"_id":1`, "standard input: record 1: unexpected EOF"},
		{"lint " + items + " --sample -", `{"a":1}`, "record 1 of items has no _id: a sample has the documents as they are stored"},
		{"lint " + items + " --limit -1", "", "--limit -1: give the number of records, or 0 for all"},
		{"lint " + items + " --random --limit 5", "", "--random reads a collection: give --config FILE too"},
		{"lint --config none.yaml", "", "load configuration: open none.yaml: no such file or directory"},
		{"lint --config " + noKinds, "", noKinds + ": it has no kinds with a lens: give a lens, and its records with --sample"},
		{"lint --random --config " + config, "", "--random: give the number of records with --limit"},
		{"lint --config " + config + " " + orders, "", config + ": no entry of its kinds has the lens " + orders},
		{"diff " + items, "", "no sample given: use --sample SOURCE, or --config FILE for the collections of its older version"},
		{"diff " + items + " --show -1", "", "--show -1: give the number of records, or 0 for none"},
		{"diff testdata/bad.yaml --sample -", "", `testdata/bad.yaml:2:23: rename has no key "too"; allowed: from, to (and 2 more; 'dbcontroller lens lint' lists them)`},
		{"try", "", "no lens given: dbcontroller lens try FILE < RECORD"},
		{"try " + items, "", "standard input has 0 records: lens try reads one record of items there; give records of further kinds with --with"},
		{"try " + items, `{"_id":1} {"_id":2}`, "standard input has 2 records: lens try reads one record of items there; give records of further kinds with --with"},
		{"try " + items, `{"a":1}`, "standard input: record 1 has no _id: give the stored record with its _id"},
		{"try " + items, `{"_id":1}`, "lens try: up: the _id: it is {\"$numberInt\":\"1\"} (int), not a string of the form regions/{r}/items/{i}"},
		{"try " + orders + " --with x.json", `{"_id":"orders/1"}`, "--with x.json: give the kind, as KIND=FILE; the kinds are: orders, ratings"},
		{"try " + orders + " --with ratings=testdata/ratings1.json", `{"_id":"orders/7"}`, "orders orders/7 and ratings orders/1/rating do not belong together: give the records of one group"},
		{"schema x", "", `unknown command "x" for "dbcontroller lens schema"`},
	} {
		out, err := runLens(t, tc.stdin, tc.line)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: error %v, want %s\n%s", tc.line, err, tc.want, out)
		}
	}
}

// TestRecordsForgeNoRow: users of the service chose the ids and fields of a sample. None of them
// becomes a row of a report.
func TestRecordsForgeNoRow(t *testing.T) {
	t.Parallel()
	const nothing = "testdata/nothing.yaml --sample -"
	for _, c := range []struct {
		line, stdin string
		options     []lens.Option
	}{
		{line: "lint testdata/broken.yaml --sample -", stdin: `{"_id":"a\nFORGED row","text":"one"}`, options: []lens.Option{forgetful()}},
		{line: "lint " + nothing, stdin: `{"_id":"a\nFORGED row"} {"_id":"a\nFORGED row"}`},
		{line: "lint " + packagesLens + " --sample -", stdin: `{"_id":"a\nFORGED row","priority":"none"}`},
		{line: "diff --show 1 testdata/items.yaml --sample -", stdin: `{"_id":"regions/a/items/a\nFORGED row","price":5}`},
		{line: "diff " + nothing, stdin: `{"_id":"a\nFORGED row"}`},
		{line: "try testdata/nothing.yaml", stdin: `{"_id":"a\nFORGED row","a\nFORGED row":1}`},
	} {
		out, err := runLens(t, c.stdin, c.line, c.options...)
		if strings.Contains(out, "\nFORGED") {
			t.Errorf("%s: %v: it prints a row of the record:\n%s", c.line, err, out)
		}
		if !strings.Contains(out, `a\nFORGED row`) && !strings.Contains(c.line, "diff "+nothing) {
			t.Errorf("%s: %v: it does not show the record: %s", c.line, err, out)
		}
	}
}
