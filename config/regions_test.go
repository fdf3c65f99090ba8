package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/config"
)

// regional is a configuration with a section regions.
func regional(t *testing.T, section string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.yaml")
	text := "deployment: services/s/deployments/us\netcd: {endpoints: [\"h:1\"]}\ndbs: [{namespace: s/v1, apiVersion: v1, backend: mongo, mongo: {endpoint: \"mongodb://h\"}}]\nregions: " + section + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(path, nil)
}

func TestRegions(t *testing.T) {
	t.Parallel()
	c, err := regional(t, `{others: [{name: eu, endpoint: "https://eu:1/", caFile: ca.pem, certFile: us.pem, keyFile: /k/us.key}, {name: asia, endpoint: "http://asia:2"}], forward: true, wait: 5s}`)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(c.Path)
	want := config.Regions{Name: "us", Forward: true, Wait: 5 * time.Second, Others: []config.Region{
		{Name: "eu", Endpoint: "https://eu:1", CAFile: filepath.Join(folder, "ca.pem"), CertFile: filepath.Join(folder, "us.pem"), KeyFile: "/k/us.key"},
		{Name: "asia", Endpoint: "http://asia:2"},
	}}
	if diff := cmp.Diff(want, c.Regions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for section, want := range map[string]string{
		`{}`:                                    "others",
		`{others: []}`:                          "want 1 to 32 other regions",
		`{others: [{name: eu}]}`:                "endpoint",
		`{others: [{endpoint: "http://eu:1"}]}`: "name",
		`{others: [{name: us, endpoint: "http://eu:1"}]}`:                                    "given twice",
		`{others: [{name: eu, endpoint: "http://a:1"}, {name: eu, endpoint: "http://b:1"}]}`: "given twice",
		`{name: "a:b", others: [{name: eu, endpoint: "http://eu:1"}]}`:                       "want up to 63 letters",
		`{others: [{name: "e/u", endpoint: "http://eu:1"}]}`:                                 "want up to 63 letters",
		`{others: [{name: eu, endpoint: "eu:1"}]}`:                                           "want https://host:port",
		`{others: [{name: eu, endpoint: "http://u:secret@eu:1"}]}`:                           "want https://host:port",
		`{others: [{name: eu, endpoint: "http://eu:1", caFile: ca.pem}]}`:                    "of no use",
		`{others: [{name: eu, endpoint: "https://eu:1", certFile: us.pem}]}`:                 "want the key of certFile",
		`{others: [{name: eu, endpoint: "https://eu:1", keyFile: us.key}]}`:                  "want the certificate of keyFile",
		`{wait: 25h, others: [{name: eu, endpoint: "https://eu:1"}]}`:                        "wait",
	} {
		if _, err := regional(t, section); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", section, err, want)
		}
	}
}
