package lenses_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

// TestLensInit writes a draft that the other commands of lenses take.
func TestLensInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old := put("orders.json", `{"_id":"a","section":"games","size":5,"legacy":true}`+"\n"+`{"_id":"b","section":"web","size":7,"legacy":false}`)
	now := put("new.json", `{"_id":"b","category":"web","size":{"$numberLong":"7"}}`+"\n"+`{"_id":"a","category":"games","size":{"$numberLong":"5"}}`)
	out, diag, err := runLensInit(t, old, now)
	if err != nil || !strings.Contains(diag, "of 2 records in both samples the draft explains 2; 1 thing to decide on") {
		t.Fatalf("%v, %s", err, diag)
	}
	for _, want := range []string{"kinds: {from: orders, to: orders}", "- rename: {from: section, to: category}", "- convert: {field: size, from: int, to: long}", "- remove: {field: legacy} # "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	draft := put("draft.yaml", out)
	if out, err := runLens(t, "", "lint "+draft+" --sample "+old); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, args := range [][]string{{old}, {"-", "-"}, {old, filepath.Join(dir, "none.json")}, {old, put("other.json", `{"_id":"c"}`)}, {old, put("bad.json", "{")}} {
		if out, _, err := runLensInit(t, args...); exit.Of(err) != exit.Usage || out != "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, printed %q", args, err, out)
		}
	}
}

// runLensInit executes 'lens init' and returns what it prints on both outputs.
func runLensInit(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, diag bytes.Buffer
	root := cli.Command(nil)
	root.SetOut(&out)
	root.SetErr(&diag)
	root.SetArgs(append([]string{"lens", "init"}, args...))
	err = root.ExecuteContext(t.Context())
	return out.String(), diag.String(), err
}
