package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
)

// FuzzFixtures: each line of a file is a record with a valid document and a name, or the file is refused
// with a line that shows nothing of it.
func FuzzFixtures(f *testing.F) {
	f.Add([]byte(`{"_id": "a", "n": {"$numberLong": "1"}}` + "\n\n"))
	f.Add([]byte(`{"_id": {"$oid": "s3cret"}}`))
	f.Add([]byte("[\xff\r\n{"))
	file := filepath.Join(f.TempDir(), "seed.jsonl")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		recs, err := readFixtures(config.Fixtures{Kind: "tasks", File: file})
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.ContainsAny(err.Error(), "\r\n")) {
			t.Errorf("error %q", err)
		}
		for _, r := range recs {
			if name, ok := r.Key.Name(); !ok || name == "" || r.Doc.Validate() != nil {
				t.Errorf("%s is taken for a record: %s", r.Key, r.Doc)
			}
		}
	})
}
