package lens_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

var update = flag.Bool("update", false, "rewrite docs/lens.schema.json")

const schemaFile = "../../docs/lens.schema.json"

func TestSchemaIsUpToDate(t *testing.T) {
	t.Parallel()
	if *update {
		if err := os.WriteFile(schemaFile, lens.Schema(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(schemaFile)
	if err != nil || !bytes.Equal(committed, lens.Schema()) {
		t.Errorf("%s is not what the code generates (%v); run go test ./transform/lens -run Schema -update", schemaFile, err)
	}
}

// TestSchemaOfLensFiles: all lenses of the repository are in the schema's form. Those in
// the other tests are checked where they are parsed (parse).
func TestSchemaOfLensFiles(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, pattern := range []string{"../../examples/*/*.yaml", "../../examples/*/*/*/*.yaml", "../../integration/*/*.yaml", "../../docs/*.yaml", "../../docs/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var top map[string]any
			if yaml.Unmarshal(text, &top) != nil || top["operations"] == nil {
				continue // another kind of file
			}
			checked++
			if err := lenstest.Validate(t, text); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if checked == 0 {
		t.Error("there are no lenses")
	}
}

// allowedKeys reads them from the parser's complaint about another.
func allowedKeys(err error) []string {
	if err == nil {
		return nil
	}
	_, list, _ := strings.Cut(err.Error(), "allowed: ")
	return strings.Split(list, ", ")
}

// TestSchemaHasAllThatIsParsed: for each operation, the schema has just the keys that the
// parser allows.
func TestSchemaHasAllThatIsParsed(t *testing.T) {
	t.Parallel()
	var s struct {
		Properties  map[string]json.RawMessage
		Definitions map[string]struct {
			Properties map[string]struct {
				Properties map[string]json.RawMessage
				Required   []string
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(lens.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	for _, name := range lens.OperationNames() {
		body, ok := s.Definitions["operation"].Properties[name]
		if !ok {
			t.Errorf("the schema has no %s", name)
		}
		_, err := lens.Parse("x.yaml", []byte("kinds: {from: a, to: b}\noperations:\n  - "+name+": {no such key: 1}"))
		said := allowedKeys(err)
		if len(said) != len(body.Properties) {
			t.Errorf("%s has the keys %v (%v)", name, said, err)
		}
		for _, key := range said {
			if _, ok := body.Properties[key]; !ok {
				t.Errorf("%s has the key %s, the schema does not know it", name, key)
			}
		}
	}
	for _, key := range lens.TopKeys() {
		if _, ok := s.Properties[key]; !ok {
			t.Errorf("the schema has no %s", key)
		}
	}
}
