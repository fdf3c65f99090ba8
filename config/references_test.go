package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/config"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("bbs.yaml", []byte(whole+`imports:
- {service: accounts, deployment: services/accounts/deployments/eu, versions: [v2, v3]}
- service: teams
  deployment: services/teams/deployments/eu
  versions: [v1, v2]
  dbs:
  - {namespace: teams/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://h/", database: t1}}
  - {namespace: teams/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://h/", database: t2}}
referrers:
- {deployment: services/billing/deployments/eu, kind: bills, field: rows.*.package, of: packages}
`), env)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Imports) != 2 || len(c.Imports[1].DBs) != 2 || c.Imports[1].DBs[1].Database != "t2" {
		t.Fatalf("imports are %+v", c.Imports)
	}
	c.Imports[1].DBs = nil
	want := []config.Import{
		{Service: "accounts", Deployment: "services/accounts/deployments/eu", Older: "v2", Newer: "v3"},
		{Service: "teams", Deployment: "services/teams/deployments/eu", Older: "v1", Newer: "v2"},
	}
	if diff := cmp.Diff(want, c.Imports); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]config.Referrer{{Deployment: "services/billing/deployments/eu", Kind: "bills", Field: "rows.*.package", Of: "packages"}}, c.Referrers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReferenceRefusals(t *testing.T) {
	t.Parallel()
	own, err := config.Parse("bbs.yaml", []byte(whole), env)
	if err != nil {
		t.Fatal(err)
	}
	const other = "deployment: services/a/deployments/r"
	theirs := func(more, older, newer string) string {
		return "imports:\n- {service: a, " + other + ", versions: [" + older + ", " + newer + "], dbs: [{namespace: t/v1, backend: mongo, apiVersion: v1" + more +
			", mongo: {endpoint: \"mongodb://h/\", database: t1}}, {namespace: t/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: \"mongodb://h/\", database: t2}}]}"
	}
	for _, tc := range []struct{ text, want string }{
		{"imports:\n- {" + other + ", versions: [v1, v2]}", "bbs.yaml:19: imports[0].service: missing, want the name that lenses call it by"},
		{"imports:\n- {service: a, deployment: accounts, versions: [v1, v2]}", `bbs.yaml:19: imports[0].deployment: "accounts": want services/{service}/deployments/{region}`},
		{"imports:\n- {service: a, deployment: " + own.Deployment + ", versions: [v1, v2]}", `bbs.yaml:19: imports[0].deployment: "` + own.Deployment + `": want another deployment: references within this one follow by its own lenses`},
		{"imports:\n- {service: a, " + other + "}", "bbs.yaml:19: imports[0].versions: missing, want two of its API versions, the older one first, such as [v1, v2]"},
		{"imports:\n- {service: a, " + other + ", versions: [v1]}", `bbs.yaml:19: imports[0].versions: "v1": want two of its API versions, the older one first, such as [v1, v2]`},
		{"imports:\n- {service: a, " + other + ", versions: [v1, V2]}", `bbs.yaml:19: imports[0].versions[1]: "V2": want lower-case letters and digits, such as v1`},
		{"imports:\n- {service: a, " + other + ", versions: [v1, v2]}\n- {service: a, deployment: services/b/deployments/r, versions: [v1, v2]}",
			`bbs.yaml:20: imports[1].service: "a": imports[0] in line 19 has it already, want each service once`},
		{"imports:\n- {service: a, " + other + ", versions: [v1, v2], dbs: [{namespace: a/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: \"mongodb://h/\"}}]}",
			"bbs.yaml:19: imports[0].dbs: no entry of v2, want the databases of both versions"},
		{theirs("", "v2", "v1"), "bbs.yaml:19: imports[0].dbs: v1 comes before v2, want the older version first, in versions as in dbs"},
		{theirs(", disabled: true", "v1", "v2"), "bbs.yaml:19: imports[0].dbs[0].disabled: want no such key: the databases of another deployment are only read"},
		{theirs(", fixtures: []", "v1", "v2"), "bbs.yaml:19: imports[0].dbs[0].fixtures: want no such key: the databases of another deployment are only read"},
		{strings.NewReplacer("//h/", "//"+own.DBs[0].Hosts()+"/", "database: t1", "database: "+own.DBs[0].Database).Replace(theirs("", "v1", "v2")),
			`bbs.yaml:19: imports[0].dbs[0].namespace: "t/v1": dbs[0] is the same database on the same endpoint, want the databases of another deployment`},
		{"imports:\n- {service: a, " + other + ", versions: [v1, v2], lens: a.yaml}", "bbs.yaml:19: imports[0].lens: unknown key, want one of service, deployment, versions, dbs"},
		{"referrers:\n- {" + other + ", field: f, of: k}", "bbs.yaml:19: referrers[0].kind: missing, want the kind of that deployment whose records refer to this one's"},
		{"referrers:\n- {" + other + ", kind: b, of: k}", "bbs.yaml:19: referrers[0].field: missing, want the field that holds the keys"},
		{"referrers:\n- {" + other + ", kind: b, field: f}", "bbs.yaml:19: referrers[0].of: missing, want the kind of this deployment whose keys it holds"},
		{"referrers:\n- {" + other + ", kind: b, field: a..b, of: k}", `bbs.yaml:19: referrers[0].field: "a..b": want a path such as team or rows.*.team, without empty parts`},
		{"referrers:\n- {" + other + ", kind: b, field: f, of: k}\n- {" + other + ", kind: b, field: f, of: k}", `bbs.yaml:20: referrers[1].field: "f": want each referrer once`},
		{"referrers:\n- {kind: b, field: f, of: k}", "bbs.yaml:19: referrers[0].deployment: missing, want services/{service}/deployments/{region}"},
	} {
		_, err := config.Parse("bbs.yaml", []byte(whole+tc.text+"\n"), env)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}
