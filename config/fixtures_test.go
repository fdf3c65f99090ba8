package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
)

const withFixtures = `deployment: services/bbs.example.com/deployments/us-west2
dbs:
- namespace: n/v1
  backend: mongo
  apiVersion: v1
  fixtures:
  - {kind: processes, file: start/processes.jsonl}
  - {kind: domains, file: /etc/domains.jsonl}
  mongo: {endpoint: "mongodb://a:1/"}
- {namespace: n/v1-b, backend: mongo, apiVersion: v1, location: b, mongo: {endpoint: "mongodb://b:1/"}}
- {namespace: n/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://c:1/"}}
`

func TestFixtures(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("/srv/bbs.yaml", []byte(withFixtures), env)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.DBs[0].Fixtures; len(got) != 2 || got[0] != (config.Fixtures{Kind: "processes", File: filepath.FromSlash("/srv/start/processes.jsonl")}) || got[1].File != filepath.FromSlash("/etc/domains.jsonl") {
		t.Errorf("fixtures %+v", got)
	}
	for _, tc := range []struct{ name, old, by, want string }{
		{"no list", "  - {kind: processes, file: start/processes.jsonl}\n  - {kind: domains, file: /etc/domains.jsonl}\n", "    processes.jsonl\n", `bbs.yaml:6: dbs[0].fixtures: "processes.jsonl": want a list`},
		{"unknown key", "kind: domains", "collection: domains", `bbs.yaml:8: dbs[0].fixtures[1].collection: unknown key, want one of kind, file`},
		{"no kind", "kind: domains, ", "", `bbs.yaml:8: dbs[0].fixtures[1].kind: missing, want a kind of the service`},
		{"no file", ", file: /etc/domains.jsonl", "", `bbs.yaml:8: dbs[0].fixtures[1].file: missing, want the path of a file with a document in each line`},
		{"a kind twice", "kind: domains", "kind: processes", `bbs.yaml:8: dbs[0].fixtures[1].kind: "processes": dbs[0].fixtures[0] in line 7 has it already, want one file for each kind`},
		{"two places", "location: b,", "location: b, fixtures: [{kind: a, file: a}],", `bbs.yaml:10: dbs[1]: dbs[0] in line 3 has the fixtures of v1, want them in one entry`},
	} {
		_, err := config.Parse("/srv/bbs.yaml", []byte(strings.Replace(withFixtures, tc.old, tc.by, 1)), env)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v\nwant %s", tc.name, err, tc.want)
		}
	}
}
