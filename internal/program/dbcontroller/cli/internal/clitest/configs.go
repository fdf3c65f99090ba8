package clitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
)

// KindsConfig is a configuration of two versions that ends where its kinds begin.
const KindsConfig = `
deployment: services/shop/deployments/eu
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://db/"}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://db/"}}
kinds:
`

// Config reads a configuration with a database for each name, which is a version and maybe
// a location, and with lenses that change nothing but rename a field.
func Config(t *testing.T, service, names, kinds string) config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one.yaml": "operations: [{rename: {from: a, to: b}}]\n",
		"two.yaml": "operations: [{rename: {from: b, to: c}}]\n",
		"fan.yaml": `operations: [{fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{index}"}}]` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("lens: 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "deployment: services/" + service + "/deployments/eu\ndbs:\n"
	for _, name := range strings.Fields(names) {
		version, location, moved := strings.Cut(name, "@")
		text += "- {namespace: x/" + name + ", backend: mongo, mongo: {endpoint: 'mongodb://db/'}, apiVersion: " + version
		if moved {
			text += ", location: " + location
		}
		text += "}\n"
	}
	c, err := config.Parse(filepath.Join(dir, "x.yaml"), []byte(text+"kinds:\n"+kinds), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
