package spectest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// folders of the specifications that name their collections.
var folders = []string{
	"crud/unified", "transactions/unified", "transactions/legacy", "convenient-transactions", "sessions",
	"retryable-reads", "retryable-writes/unified", "collection-management", "change-streams",
}

// file is what both formats of specification files say about collections.
type file struct {
	Database   string `json:"database_name"`
	Collection string `json:"collection_name"`
	Bucket     string `json:"bucket_name"`

	CreateEntities []struct {
		Database *struct {
			ID   string `json:"id"`
			Name string `json:"databaseName"`
		} `json:"database"`
		Collection *struct {
			Database string `json:"database"`
			Name     string `json:"collectionName"`
		} `json:"collection"`
	} `json:"createEntities"`
	InitialData []struct {
		Database   string `json:"databaseName"`
		Collection string `json:"collectionName"`
	} `json:"initialData"`
	Tests []struct {
		Outcome json.RawMessage `json:"outcome"`
	} `json:"tests"`
}

// outcome is a collection that a test looks at in the end, such as the target of an aggregation.
type outcome struct {
	Database   string `json:"databaseName"`
	Collection string `json:"collectionName"`
}

// Collections returns the collections that the tests use, by database, without views. cases are all cases.
func (t *Tests) Collections(cases Results) (map[string][]string, error) {
	all := map[string]map[string]bool{}
	add := func(database, collection string) {
		if all[database] == nil {
			all[database] = map[string]bool{}
		}
		all[database][collection] = true
	}
	for _, f := range folders {
		paths, err := filepath.Glob(filepath.Join(t.folder, "testdata", filepath.FromSlash(f), "*.json"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			b, err := os.ReadFile(path) // #nosec G304 -- of the driver's module
			if err != nil {
				return nil, err
			}
			var one file
			if err := json.Unmarshal(b, &one); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			one.each(add)
		}
	}
	add(testDatabase, otherCollection)
	// These name their collections after the cases.
	for name := range cases {
		if strings.HasPrefix(name, "TestCrudSpec/") || strings.HasPrefix(name, "TestRetryableWritesSpec/") {
			add(testDatabase, sanitized(name))
		}
	}
	out := map[string][]string{}
	for database, collections := range all {
		for collection := range collections {
			out[database] = append(out[database], collection)
		}
	}
	return out, nil
}

// each calls add for the collections of a file.
func (f file) each(add func(database, collection string)) {
	if f.Database != "" && f.Collection != "" {
		add(f.Database, f.Collection)
	}
	if f.Database != "" && f.Bucket != "" {
		add(f.Database, f.Bucket+".files")
		add(f.Database, f.Bucket+".chunks")
	}
	databases := map[string]string{}
	for _, e := range f.CreateEntities {
		switch {
		case e.Database != nil:
			databases[e.Database.ID] = e.Database.Name
		case e.Collection != nil && !strings.HasSuffix(e.Collection.Name, "view"):
			add(databases[e.Collection.Database], e.Collection.Name)
		}
	}
	for _, d := range f.InitialData {
		add(d.Database, d.Collection)
	}
	for _, test := range f.Tests {
		var ends []outcome // the older format has a document there
		if json.Unmarshal(test.Outcome, &ends) != nil {
			continue
		}
		for _, one := range ends {
			add(one.Database, one.Collection)
		}
	}
}

// testDatabase is the database of tests whose files name none.
const testDatabase = "test"

// otherCollection is the target of aggregations there.
const otherCollection = "other_test_collection"

// sanitized returns the collection of a case as the driver's program names it.
func sanitized(name string) string {
	const longest = 120
	name = strings.ReplaceAll(name, "$", "%")
	if len(testDatabase+"."+name) >= longest {
		name = name[len(name)-(longest-len(testDatabase+".")):]
	}
	return name
}
