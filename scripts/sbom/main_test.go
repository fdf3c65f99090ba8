package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWrite: the list of a real program names its modules with hashes, and is the same
// each time.
func TestWrite(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := write(&first, self, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	if err := write(&second, self, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two lists of one program differ")
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(&first, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("the program is %+v", bom.Metadata.Component)
	}
	found := false
	for _, c := range *bom.Components {
		if c.Name == "github.com/CycloneDX/cyclonedx-go" {
			found = true
			if c.Hashes == nil || !strings.HasPrefix(c.PackageURL, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v") {
				t.Errorf("%+v", c)
			}
		}
	}
	if !found {
		t.Error("the library that this very program links is not named")
	}
}

func TestNoProgram(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(&bytes.Buffer{}, file, "v1"); err == nil || !strings.Contains(err.Error(), "read modules of "+file) {
		t.Errorf("%v", err)
	}
}
