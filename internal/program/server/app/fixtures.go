package app

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
)

// fixtures reads the configured initial records, by API version. It checks their kinds against
// kinds; a version without an entry may have any kinds.
func fixtures(dbs []config.DB, kinds map[string][]string) (map[string][]record.Record, error) {
	out := map[string][]record.Record{}
	for _, db := range dbs {
		for _, f := range db.Fixtures {
			if known := kinds[db.APIVersion]; known != nil && !slices.Contains(known, f.Kind) {
				return nil, fmt.Errorf("fixtures of %s: it has no kind %q: correct kind, want one of %s", db.Version, f.Kind, strings.Join(known, ", "))
			}
			recs, err := readFixtures(f)
			if err != nil {
				return nil, fmt.Errorf("fixtures of %s: %w", db.Version, err)
			}
			out[db.APIVersion] = append(out[db.APIVersion], recs...)
		}
		if len(db.Fixtures) == 0 {
			continue
		}
		// Initial records are created in one transaction, which a database limits.
		most := databases.Once(db, max(len(kinds[db.APIVersion]), len(db.Fixtures)))
		if n := len(out[db.APIVersion]); n > most {
			return nil, fmt.Errorf("fixtures of %s: there are %d, but its database creates at most %d in one transaction: use fewer, and create the rest through the API", db.Version, n, most)
		}
	}
	return out, nil
}

// readFixtures reads a file. Its errors name lines and never quote them, since records may be
// secret.
func readFixtures(f config.Fixtures) ([]record.Record, error) {
	text, err := os.ReadFile(f.File)
	if err != nil {
		return nil, err
	}
	var out []record.Record
	lines := bufio.NewScanner(bytes.NewReader(text))
	// A record may be as long as the file. The scanner's default limit would refuse it.
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		bad := func(what string) error { return fmt.Errorf("%s:%d: %s", filepath.Base(f.File), n, what) }
		var doc bson.Raw
		if bson.UnmarshalExtJSON(line, false, &doc) != nil || doc.Validate() != nil {
			return nil, bad("it is not a document in Extended JSON: write one document in each line")
		}
		name, ok := doc.Lookup("_id").StringValueOK()
		if !ok || name == "" {
			return nil, bad("its _id is not a text: use the name of the record")
		}
		out = append(out, record.Record{Kind: f.Kind, Key: record.StringKey(name), Doc: doc})
	}
	return out, lines.Err()
}
