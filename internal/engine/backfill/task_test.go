package backfill_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/record"
)

func TestFromLens(t *testing.T) {
	t.Parallel()
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("fill.yaml", "lens: 1\noperations:\n  - add: {field: region, default: us}\n")
	task, err := backfill.FromLens("fill", "v1", "items", file, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ have, want item }{
		{item{ID: "a", N: 1}, item{ID: "a", N: 1, Region: "us"}},
		{item{ID: "a", N: 1, Region: "eu"}, item{ID: "a", N: 1, Region: "eu"}},
	} {
		doc, err := task.Func(record.Record{Kind: "items", Key: record.StringKey("a"), Doc: tc.have.doc()})
		if err != nil || itemOf(doc) != tc.want {
			t.Errorf("%+v became %s, %v", tc.have, doc, err)
		}
	}
	same, err := backfill.FromLens("fill", "v1", "items", file, "")
	other, errOther := backfill.FromLens("fill", "v1", "items", write("fill.yaml", "lens: 1\noperations:\n  - add: {field: region, default: eu}\n"), "")
	if err != nil || errOther != nil || task.Hash() != same.Hash() || task.Hash() == other.Hash() {
		t.Errorf("hashes %s, %s and %s, %v, %v", task.Hash(), same.Hash(), other.Hash(), err, errOther)
	}
	if _, err := backfill.FromLens("fill", "v1", "items", write("key.yaml", "lens: 1\nkey: {from: \"a/{x}\", to: \"b/{x}\"}\noperations: []\n"), ""); err == nil || !strings.Contains(err.Error(), "update fill: ") {
		t.Errorf("a lens that changes names: %v", err)
	}
	if _, err := backfill.FromLens("fill", "v1", "items", "missing.yaml", ""); err == nil {
		t.Error("a file that is missing")
	}
}
