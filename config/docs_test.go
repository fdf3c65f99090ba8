package config_test

import (
	"os"
	"strings"
	"testing"

	"dbcontroller.dev/config"
)

// TestReferenceIsTrue reads the example of docs/configuration.md, and the database name
// that it shows.
func TestReferenceIsTrue(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("there is no example")
	}
	if _, err := config.Parse("bbs.yaml", []byte(example), env); err != nil {
		t.Error(err)
	}
	const namespace = "envs/prod-us-west2/bbs/v1"
	if want := namespace + " -> " + config.DatabaseName(namespace); !strings.Contains(string(b), want) {
		t.Errorf("it does not say %q", want)
	}
	if want := namespace + " -> " + config.Prefix(namespace) + "/"; !strings.Contains(string(b), want) {
		t.Errorf("it does not say %q", want)
	}
}
