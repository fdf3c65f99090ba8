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

const whole = `deployment: services/bbs.example.com/deployments/us-west2
sharding: {ringSize: 16}
etcd: {endpoints: ["127.0.0.1:2379"]}        # or run --embedded-etcd
copy: {auto: true, maxRate: 0, workers: 4}  # documents a second; 0 is no limit
dbs:
- namespace: envs/$(ENV)-$(REGION)/bbs/v1
  backend: mongo
  apiVersion: v1
  connectionPoolSize: $(POOL)
  mongo: {endpoint: "$(MONGO_URI)"}
  disabled: $(V1_DISABLED)
- namespace: envs/$(ENV)-$(REGION)/bbs/v2
  backend: mongo
  apiVersion: v2
  mongo: {endpoint: "$(MONGO_URI)"}
kinds:                                    # fixed-name kinds
- {from: packages, to: packages, lens: lenses/packages.yaml}
`

var vars = map[string]string{
	"ENV": "prod", "REGION": "us-west2", "POOL": "25", "V1_DISABLED": "false",
	"MONGO_URI": "mongodb://app:s3cret@db1,db2:27018/?replicaSet=rs0",
	"EMPTY":     "", "PASSWORD": "hunter2",
}

func env(name string) (string, bool) {
	v, ok := vars[name]
	return v, ok
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := config.Parse("/etc/dbc/bbs.yaml", []byte(whole), env)
	if err != nil {
		t.Fatal(err)
	}
	uri := config.NewSecret(vars["MONGO_URI"])
	want := config.Config{
		Path:       "/etc/dbc/bbs.yaml",
		Deployment: "services/bbs.example.com/deployments/us-west2",
		RingSize:   16,
		Etcd:       config.Etcd{Endpoints: []string{"127.0.0.1:2379"}},
		Copy:       config.Copy{Auto: true, Workers: 4, Deployments: 8},
		Switch:     config.Switch{Deadline: 10 * time.Second, Retries: 3, MaxLag: 500 * time.Millisecond},
		Operator:   config.DefaultOperatorListen,
		API:        config.DefaultAPIListen,
		Page:       true,
		DBs: []config.DB{
			{
				Version: "v1", APIVersion: "v1", Namespace: "envs/prod-us-west2/bbs/v1", Backend: "mongo",
				Database: "dbc_envs_prod_us_west2_bbs_v1_02bbbbe28b2ef889",
				Endpoint: uri, PoolSize: 25,
			},
			{
				Version: "v2", APIVersion: "v2", Namespace: "envs/prod-us-west2/bbs/v2", Backend: "mongo",
				Database: "dbc_envs_prod_us_west2_bbs_v2_5e26724bfa745119",
				Endpoint: uri, PoolSize: config.DefaultPoolSize,
			},
		},
		Kinds: []config.Kind{{From: "packages", To: "packages", Older: "v1", Newer: "v2", Lens: "/etc/dbc/lenses/packages.yaml"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(config.Secret{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := got.DBs[0].Location(), "mongodb://db1:27017,db2:27018/dbc_envs_prod_us_west2_bbs_v1_02bbbbe28b2ef889"; got != want {
		t.Errorf("Location() = %s, want %s", got, want)
	}
}

func TestParseOptionalKeys(t *testing.T) {
	t.Parallel()
	got, err := config.Parse("conf/bbs.yaml", []byte(`
deployment: services/bbs/deployments/eu
dataDir: /var/lib/$(ENV)$$data
copy:
  auto: false
  maxRate: 500
  deployments: 3
switch: {deadline: 1m30s, maxHold: 2s, maxLag: 250ms, retries: 0, automatic: false}
operator: {listen: ":9000", shardMetrics: true, traces: {endpoint: "https://collector:4317", ratio: 0.5}}
api:
  listen: localhost:9001
  page: false
  controllers: ["http://10.0.0.1:7090", "https://ctl-2.example.org"]
hooks:
- {name: pager, url: "https://hooks.example.org/x?token=$(PASSWORD)", secret: "$(PASSWORD)-$(PASSWORD)-1", events: [switched, aborted], timeout: 3s, giveUp: 1h}
- {name: log, command: [/usr/bin/logger, "$(ENV)"]}
rollouts: {checks: [{name: errors, command: [/usr/bin/errors, "$(ENV)"]}, {name: latency, command: [/l], timeout: 2s}]}
dbs:
- mongo:
    endpoint: mongodb+srv://cluster.example.com/
    database: bbs
  namespace: bbs/v7
  backend: mongo
  apiVersion: v7
  disabled: true
- {mongo: {endpoint: "mongodb://other"}, namespace: bbs/v7b, backend: mongo, apiVersion: v7, location: eu-2}
- {mongo: {endpoint: "mongodb://third", reads: linearizable}, namespace: bbs/v8, backend: mongo, apiVersion: v8, location: eu}
- {mongo: {endpoint: "mongodb://third", reads: majority}, namespace: bbs/v9, backend: mongo, apiVersion: v9}
kinds:
- from: a
  to: b
  lens: /abs/l.yaml
  fence: writeBlock
  versions: [v7, v8]
  indexes:
    b: []
    parts:
    - {key: {z: 1, a: -1}, unique: true, name: "$(ENV)"}
    - key: {t: text}
      partialFilterExpression: {x: {$in: [1.5, null, "y"]}}
- {from: c, discontinued: true, versions: [v7, v8]}
- {from: d, discontinued: true, fence: view, versions: [v8, v9]}
- {from: a, to: b, lens: l.yaml, versions: [v8, v9]}
`), env)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Path: "conf/bbs.yaml", Deployment: "services/bbs/deployments/eu", RingSize: 16,
		DataDir:  "/var/lib/prod$data",
		Copy:     config.Copy{MaxRate: 500, Workers: 4, Deployments: 3},
		Switch:   config.Switch{Deadline: 90 * time.Second, MaxHold: 2 * time.Second, MaxLag: 250 * time.Millisecond, Hold: true},
		Operator: ":9000", ShardMetrics: true, Traces: config.Traces{Endpoint: "https://collector:4317", Ratio: 0.5}, API: "localhost:9001",
		Controllers: []string{"http://10.0.0.1:7090", "https://ctl-2.example.org"},
		DBs: []config.DB{
			{
				Version: "v7", APIVersion: "v7", Namespace: "bbs/v7", Backend: "mongo", Database: "bbs", Disabled: true,
				Endpoint: config.NewSecret("mongodb+srv://cluster.example.com/"), PoolSize: 100,
			},
			{Version: "v7@eu-2", APIVersion: "v7", Namespace: "bbs/v7b", Backend: "mongo", Database: config.DatabaseName("bbs/v7b"), Endpoint: config.NewSecret("mongodb://other"), PoolSize: 100},
			{Version: "v8@eu", APIVersion: "v8", Namespace: "bbs/v8", Backend: "mongo", Database: config.DatabaseName("bbs/v8"), Endpoint: config.NewSecret("mongodb://third"), PoolSize: 100},
			{Version: "v9", APIVersion: "v9", Namespace: "bbs/v9", Backend: "mongo", Database: config.DatabaseName("bbs/v9"), Endpoint: config.NewSecret("mongodb://third"), PoolSize: 100, MajorityReads: true},
		},
		Hooks: []config.Hook{
			{Name: "pager", URL: config.NewKey("https://hooks.example.org/x?token=hunter2"), Secret: config.NewKey("hunter2-hunter2-1"),
				Events: []string{"switched", "aborted"}, Timeout: 3 * time.Second, GiveUp: time.Hour},
			{Name: "log", Command: []string{"/usr/bin/logger", "prod"}, Timeout: 10 * time.Second, GiveUp: 24 * time.Hour},
		},
		RolloutChecks: []config.RolloutCheck{
			{Name: "errors", Command: []string{"/usr/bin/errors", "prod"}, Timeout: 30 * time.Second}, {Name: "latency", Command: []string{"/l"}, Timeout: 2 * time.Second},
		},
		Kinds: []config.Kind{{From: "a", To: "b", Older: "v7", Newer: "v8", Lens: "/abs/l.yaml", Fence: "writeBlock", Indexes: map[string][]string{
			"b": {}, "parts": {`{"key":{"z":1,"a":-1},"unique":true,"name":"prod"}`, `{"key":{"t":"text"},"partialFilterExpression":{"x":{"$in":[1.5,null,"y"]}}}`},
		}}, {From: "c", Older: "v7", Newer: "v8", Discontinued: true}, {From: "d", Older: "v8", Newer: "v9", Discontinued: true, Fence: "view"},
			{From: "a", To: "b", Older: "v8", Newer: "v9", Lens: "conf/l.yaml"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(config.Secret{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v7", "v7@eu-2", "v8@eu", "v9"}, got.Versions()); diff != "" {
		t.Errorf("Versions() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v7", "v8", "v9"}, got.APIVersions()); diff != "" {
		t.Errorf("APIVersions() (-want +got):\n%s", diff)
	}
	if _, ok := got.DB("v7"); !ok {
		t.Error("DB(v7) not found")
	}
}

// TestRefusals edits the whole example, one slip at a time.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const endpoint1 = "  mongo: {endpoint: \"$(MONGO_URI)\"}\n  disabled"
	for _, tc := range []struct {
		name, old, new string
		want           string
	}{
		{"unknown key", "sharding:", "shards:", `bbs.yaml:2: shards: unknown key, want one of deployment, sharding, etcd, dataDir, copy, switch, operator, api, dbs, initialVersion, kinds, updates, imports, referrers, access, parked, hooks, rollouts, search, regions`},
		{"unknown nested key", "workers: 4", "threads: 4", `bbs.yaml:4: copy.threads: unknown key, want one of auto, maxRate, workers, throttle, maxSourceLoad, window, deployments`},
		{"unknown key of a database", "  connectionPoolSize", "  poolSize", `bbs.yaml:9: dbs[0].poolSize: unknown key, want one of namespace, backend, apiVersion, location, connectionPoolSize, mongo, etcd, disabled, encryption, fixtures`},
		{"unknown key of mongo", "{endpoint: \"$(MONGO_URI)\"}\nkinds", "{uri: \"$(MONGO_URI)\"}\nkinds", `bbs.yaml:15: dbs[1].mongo.uri: unknown key, want one of endpoint, database, reads`},
		{"key twice", "sharding: {ringSize: 16}", "sharding: {ringSize: 16, ringSize: 8}", `bbs.yaml:2: sharding.ringSize: given twice, first in line 2`},
		{"unset variable", "$(POOL)", "$(POOL_SIZE)", `bbs.yaml:9: dbs[0].connectionPoolSize: "$(POOL_SIZE)": variable POOL_SIZE is not set: set it in the environment`},
		{"unset variable in part of a value", "$(REGION)/bbs/v2", "$(ZONE)/bbs/v2", `bbs.yaml:12: dbs[1].namespace: "envs/$(ENV)-$(ZONE)/bbs/v2": variable ZONE is not set: set it in the environment`},
		{"open variable", "$(REGION)/bbs/v2", "$(REGION/bbs/v2", `bbs.yaml:12: dbs[1].namespace: "envs/$(ENV)-$(REGION/bbs/v2": want ) after $(, or $$( for a plain $(`},
		{"bad variable", "$(POOL)", "$(2)", `bbs.yaml:9: dbs[0].connectionPoolSize: "$(2)": $(2) is no variable: want letters, digits and _, file: and a path, or $$( for a plain $(`},
		{"not a number", "ringSize: 16", "ringSize: many", `bbs.yaml:2: sharding.ringSize: "many": want a whole number from 1 to 1024`},
		{"number out of bounds", "ringSize: 16", "ringSize: 0", `bbs.yaml:2: sharding.ringSize: "0": want a whole number from 1 to 1024`},
		{"bad throttle", "workers: 4", "throttle: on", `bbs.yaml:4: copy.throttle: "on": want one of auto, off`},
		{"load over all", "workers: 4", "maxSourceLoad: 101", `bbs.yaml:4: copy.maxSourceLoad: "101": want a whole number from 0 to 100`},
		{"bad window", "workers: 4", "window: 22-5", `bbs.yaml:4: copy.window: "22-5": want HH:MM-HH:MM with two different times of the day in UTC, such as 22:00-05:00`},
		{"window of nothing", "workers: 4", "window: '05:00-05:00'", `bbs.yaml:4: copy.window: "05:00-05:00": want HH:MM-HH:MM with two different times of the day in UTC, such as 22:00-05:00`},
		{"fraction", "workers: 4", "workers: 1.5", `bbs.yaml:4: copy.workers: "1.5": want a whole number from 1 to 256`},
		{"negative rate", "maxRate: 0", "maxRate: -1", `bbs.yaml:4: copy.maxRate: "-1": want a whole number from 0 to 10000000`},
		{"not a number in a variable", "$(POOL)", "$(REGION)", `bbs.yaml:9: dbs[0].connectionPoolSize: "us-west2": want a whole number from 1 to 10000`},
		{"empty variable", "$(V1_DISABLED)", "$(EMPTY)", `bbs.yaml:11: dbs[0].disabled: "(empty)": want true or false`},
		{"not a flag", "auto: true", "auto: yes", `bbs.yaml:4: copy.auto: "yes": want true or false`},
		{"duration without unit", "copy:", "switch: {deadline: 10}\ncopy:", `bbs.yaml:4: switch.deadline: "10": want a duration from 1s to 10m0s, such as 10s`},
		{"duration out of bounds", "copy:", "switch: {deadline: 10ms}\ncopy:", `bbs.yaml:4: switch.deadline: "10ms": want a duration from 1s to 10m0s, such as 10s`},
		{"controller without scheme", "copy:", "api: {controllers: ['10.0.0.1:7090']}\ncopy:", `bbs.yaml:4: api.controllers[0]: "10.0.0.1:7090": want http://host:port or https://host:port of the API of a controller`},
		{"controller with another policy", "copy:", "api: {controllers: ['http://a;script-src *']}\ncopy:", `bbs.yaml:4: api.controllers[0]: "http://a;script-src *": want http://host:port or https://host:port of the API of a controller`},
		{"listen without port", "copy:", "operator: {listen: localhost}\ncopy:", `bbs.yaml:4: operator.listen: "localhost": want host:port, such as 127.0.0.1:7080`},
		{"shard metrics", "copy:", "operator: {shardMetrics: some}\ncopy:", `bbs.yaml:4: operator.shardMetrics: "some": want true or false`},
		{"check without name", "copy:", "rollouts: {checks: [{command: [/b]}]}\ncopy:", `bbs.yaml:4: rollouts.checks[0].name: missing, want a name such as errors`},
		{"check with a bad name", "copy:", "rollouts: {checks: [{name: A b, command: [/b]}]}\ncopy:", `bbs.yaml:4: rollouts.checks[0].name: "A b": want up to 32 lower-case letters, digits and dashes`},
		{"check twice", "copy:", "rollouts: {checks: [{name: a, command: [/b]}, {name: a, command: [/b]}]}\ncopy:", `bbs.yaml:4: rollouts.checks[1].name: "a": given twice, want a name for each check`},
		{"check without command", "copy:", "rollouts: {checks: [{name: a}]}\ncopy:", `bbs.yaml:4: rollouts.checks[0].command: missing, want a list with the path of a program and its arguments`},
		{"check of no path", "copy:", "rollouts: {checks: [{name: a, command: [sh]}]}\ncopy:", `bbs.yaml:4: rollouts.checks[0].command: "sh": want the path of a program from the root first`},
		{"check that takes long", "copy:", "rollouts: {checks: [{name: a, command: [/b], timeout: 10m}]}\ncopy:", `bbs.yaml:4: rollouts.checks[0].timeout: "10m": want a duration from 1s to 5m0s, such as 10s`},
		{"hooks are a list", "copy:", "hooks: {name: a}\ncopy:", `bbs.yaml:4: hooks: "{name: a}": want a list`},
		{"too many hooks", "copy:", "hooks: [" + strings.Repeat("{}, ", 16) + "{}]\ncopy:", `bbs.yaml:4: hooks: "17": want at most 16 hooks`},
		{"hook without name", "copy:", "hooks: [{url: 'https://a'}]\ncopy:", `bbs.yaml:4: hooks[0].name: missing, want a name such as pager`},
		{"hook with a bad name", "copy:", "hooks: [{name: A b, url: 'https://a'}]\ncopy:", `bbs.yaml:4: hooks[0].name: "A b": want up to 32 lower-case letters, digits and dashes`},
		{"hook twice", "copy:", "hooks:\n- {name: a, url: 'https://a'}\n- {name: a, url: 'https://b'}\ncopy:", `bbs.yaml:6: hooks[1].name: "a": hooks[0] in line 5 has it already, want a name for each hook`},
		{"hook to nowhere", "copy:", "hooks: [{name: a}]\ncopy:", `bbs.yaml:4: hooks[0].command: missing, want url, or a list with the path of a program and its arguments`},
		{"hook with two ways", "copy:", "hooks: [{name: a, url: 'https://a', command: [/b]}]\ncopy:", `bbs.yaml:4: hooks[0].command: want url or command, and not both`},
		{"hook's command is a text", "copy:", "hooks: [{name: a, command: /bin/notify}]\ncopy:", `bbs.yaml:4: hooks[0].command: "/bin/notify": want a list`},
		{"hook's command is looked for", "copy:", "hooks: [{name: a, command: [notify]}]\ncopy:", `bbs.yaml:4: hooks[0].command: "notify": want the path of a program from the root first`},
		{"hook's command is signed", "copy:", "hooks: [{name: a, command: [/notify], secret: x}]\ncopy:", `bbs.yaml:4: hooks[0].secret: want no such key: only requests to a url are signed`},
		{"hook by another scheme", "copy:", "hooks: [{name: a, url: 'ftp://a/hidden'}]\ncopy:", `bbs.yaml:4: hooks[0].url: want https://host/path or http://host:port/path, without a user`},
		{"hook with a user", "copy:", "hooks: [{name: a, url: 'https://me:hidden@a/'}]\ncopy:", `bbs.yaml:4: hooks[0].url: want https://host/path or http://host:port/path, without a user`},
		{"hook with an empty url", "copy:", "hooks: [{name: a, url: $(EMPTY)}]\ncopy:", `bbs.yaml:4: hooks[0].url: missing, want https://host/path or http://host:port/path`},
		{"hook with a short secret", "copy:", "hooks: [{name: a, url: 'https://a', secret: $(PASSWORD)}]\ncopy:", `bbs.yaml:4: hooks[0].secret: want at least 16 characters that nobody can guess, such as those of 'openssl rand -base64 24'`},
		{"hook with a secret that is no base64", "copy:", "hooks: [{name: a, url: 'https://a', secret: 'whsec_hidden-hidden-'}]\ncopy:", `bbs.yaml:4: hooks[0].secret: want base64 after whsec_`},
		{"hook for another event", "copy:", "hooks: [{name: a, url: 'https://a', events: [switch]}]\ncopy:", `bbs.yaml:4: hooks[0].events[0]: "switch": want one of begin, ready, retry, switched, aborted, parked, fence-broken, completed`},
		{"hook for an event twice", "copy:", "hooks: [{name: a, url: 'https://a', events: [begin, begin]}]\ncopy:", `bbs.yaml:4: hooks[0].events[1]: "begin": given twice`},
		{"hook with a long timeout", "copy:", "hooks: [{name: a, url: 'https://a', timeout: 1h}]\ncopy:", `bbs.yaml:4: hooks[0].timeout: "1h": want a duration from 1s to 5m0s, such as 10s`},
		{"hook that gives up at once", "copy:", "hooks: [{name: a, url: 'https://a', giveUp: 1s}]\ncopy:", `bbs.yaml:4: hooks[0].giveUp: "1s": want a duration from 1m0s to 168h0m0s, such as 10s`},
		{"unknown key of a hook", "copy:", "hooks: [{name: a, uri: 'https://a'}]\ncopy:", `bbs.yaml:4: hooks[0].uri: unknown key, want one of name, url, secret, command, events, timeout, giveUp`},
		{"traces nowhere", "copy:", "operator: {traces: {ratio: 0.5}}\ncopy:", `bbs.yaml:4: operator.traces.endpoint: missing, want http://host:port or https://host:port of a collector of OpenTelemetry (OTLP over gRPC)`},
		{"traces without scheme", "copy:", "operator: {traces: {endpoint: \"collector:4317\"}}\ncopy:", `bbs.yaml:4: operator.traces.endpoint: "collector:4317": want http://host:port or https://host:port of a collector of OpenTelemetry (OTLP over gRPC)`},
		{"traces without port", "copy:", "operator: {traces: {endpoint: \"http://collector\"}}\ncopy:", `bbs.yaml:4: operator.traces.endpoint: "http://collector": want http://host:port or https://host:port of a collector of OpenTelemetry (OTLP over gRPC)`},
		{"traces to a path", "copy:", "operator: {traces: {endpoint: \"http://collector:4318/v1/traces\"}}\ncopy:", `bbs.yaml:4: operator.traces.endpoint: "http://collector:4318/v1/traces": want http://host:port or https://host:port of a collector of OpenTelemetry (OTLP over gRPC)`},
		{"traces with a password", "copy:", "operator: {traces: {endpoint: \"http://me:secret@collector:4317\"}}\ncopy:", `bbs.yaml:4: operator.traces.endpoint: want http://host:port or https://host:port of a collector of OpenTelemetry (OTLP over gRPC), without a user`},
		{"more than all traces", "copy:", "operator: {traces: {endpoint: \"http://collector:4317\", ratio: 2}}\ncopy:", `bbs.yaml:4: operator.traces.ratio: "2": want a number from 0 to 1`},
		{"traces by no number", "copy:", "operator: {traces: {endpoint: \"http://collector:4317\", ratio: NaN}}\ncopy:", `bbs.yaml:4: operator.traces.ratio: "NaN": want a number from 0 to 1`},
		{"etcd without port", "127.0.0.1:2379", "127.0.0.1", `bbs.yaml:3: etcd.endpoints[0]: "127.0.0.1": want host:port`},
		{"etcd key alone", `["127.0.0.1:2379"]`, `["127.0.0.1:2379"], keyFile: etcd.key`, `bbs.yaml:3: etcd.certFile: missing, want the certificate of keyFile`},
		{"etcd user alone", `["127.0.0.1:2379"]`, `["127.0.0.1:2379"], user: mover`, `bbs.yaml:3: etcd.passwordFile: missing, want a file with the password of user`},
		{"etcd certificate without TLS", `["127.0.0.1:2379"]`, `["http://127.0.0.1:2379"], caFile: ca.crt`, `bbs.yaml:3: etcd.endpoints: want https://, for caFile and certFile are of no use without`},
		{"etcd half with TLS", `["127.0.0.1:2379"]`, `["https://127.0.0.1:2379", "127.0.0.1:2380"]`, `bbs.yaml:3: etcd.endpoints: want https:// before all of them or none`},
		{"etcd endpoints no list", `["127.0.0.1:2379"]`, "127.0.0.1:2379", `bbs.yaml:3: etcd.endpoints: "127.0.0.1:2379": want a list`},
		{"scalar for a mapping", "{ringSize: 16}", "16", `bbs.yaml:2: sharding: "16": want a mapping with the keys ringSize`},
		{"list for a scalar", "ringSize: 16", "ringSize: [16]", `bbs.yaml:2: sharding.ringSize: want a single value`},
		{"anchor", "ringSize: 16", "ringSize: &x 16", `bbs.yaml:2: sharding.ringSize: "&x 16": want a plain value, without anchors, aliases and tags`},
		{"missing deployment", "deployment: services/bbs.example.com/deployments/us-west2", "", `bbs.yaml:1: deployment: missing, want services/{service}/deployments/{region}`},
		{"bad deployment", "deployments/us-west2", "us-west2", `bbs.yaml:1: deployment: "services/bbs.example.com/us-west2": want services/{service}/deployments/{region}`},
		{"missing namespace", "- namespace: envs/$(ENV)-$(REGION)/bbs/v2\n  backend", "- backend", `bbs.yaml:12: dbs[1].namespace: missing, want a name such as envs/prod/bbs/v1`},
		{"blank in namespace", "bbs/v2", "b s/v2", `bbs.yaml:12: dbs[1].namespace: "envs/prod-us-west2/b s/v2": want a name without blanks and control characters`},
		{"missing backend", "  backend: mongo\n  apiVersion: v2", "  apiVersion: v2", `bbs.yaml:12: dbs[1].backend: missing, want mongo or etcd`},
		{"other backend", "  backend: mongo\n  apiVersion: v2", "  backend: mysql\n  apiVersion: v2", `bbs.yaml:13: dbs[1].backend: "mysql": want mongo or etcd`},
		{"missing version", "  apiVersion: v2\n", "", `bbs.yaml:12: dbs[1].apiVersion: missing, want a version such as v1`},
		{"bad version", "apiVersion: v2", "apiVersion: V-2", `bbs.yaml:14: dbs[1].apiVersion: "V-2": want lower-case letters and digits, such as v1`},
		{"missing mongo", "  mongo: {endpoint: \"$(MONGO_URI)\"}\nkinds", "kinds", `bbs.yaml:12: dbs[1].mongo.endpoint: missing, want mongodb://host:port/?options or mongodb+srv://host/?options`},
		{"missing endpoint", "{endpoint: \"$(MONGO_URI)\"}\nkinds", "{database: x}\nkinds", `bbs.yaml:15: dbs[1].mongo.endpoint: missing, want mongodb://host:port/?options or mongodb+srv://host/?options`},
		{"empty endpoint", endpoint1, "  mongo: {endpoint: \"$(EMPTY)\"}\n  disabled", `bbs.yaml:10: dbs[0].mongo.endpoint: missing, want mongodb://host:port/?options or mongodb+srv://host/?options`},
		{"bad endpoint in a variable is not shown", endpoint1, "  mongo: {endpoint: \"$(PASSWORD)\"}\n  disabled", `bbs.yaml:10: dbs[0].mongo.endpoint: "$(PASSWORD)": want mongodb://host:port/?options or mongodb+srv://host/?options`},
		{"bad endpoint is redacted", endpoint1, "  mongo: {endpoint: \"http://me:hunter2@db\"}\n  disabled", `bbs.yaml:10: dbs[0].mongo.endpoint: "http://***@db": want mongodb://host:port/?options or mongodb+srv://host/?options`},
		{"other reads", endpoint1, "  mongo: {endpoint: \"$(MONGO_URI)\", reads: local}\n  disabled", `bbs.yaml:10: dbs[0].mongo.reads: "local": want one of linearizable, majority`},
		{"no reads", endpoint1, "  mongo: {endpoint: \"$(MONGO_URI)\", reads: \"$(EMPTY)\"}\n  disabled", `bbs.yaml:10: dbs[0].mongo.reads: "(empty)": want one of linearizable, majority`},
		{"reads of etcd", inMongo, inEtcd("endpoints: ['db:1'], reads: majority"), `bbs.yaml:15: dbs[1].etcd.reads: unknown key, want one of prefix, kinds, maxTxnOps, maxRequestBytes, endpoints, caFile, certFile, keyFile, user, passwordFile`},
		{"endpoint without host", endpoint1, "  mongo: {endpoint: \"mongodb://\"}\n  disabled", `bbs.yaml:10: dbs[0].mongo.endpoint: "mongodb://": want mongodb://host:port/?options or mongodb+srv://host/?options`},
		{"bad database", "{endpoint: \"$(MONGO_URI)\"}\nkinds", "{endpoint: \"$(MONGO_URI)\", database: a.b}\nkinds", `bbs.yaml:15: dbs[1].mongo.database: "a.b": want a database name without any of /\. "$*<>:|?`},
		{"own database", "{endpoint: \"$(MONGO_URI)\"}\nkinds", "{endpoint: \"$(MONGO_URI)\", database: admin}\nkinds", `bbs.yaml:15: dbs[1].mongo.database: "admin": want a database that is not one of MongoDB's own (admin, local, config)`},
		{"empty database", "{endpoint: \"$(MONGO_URI)\"}\nkinds", "{endpoint: \"$(MONGO_URI)\", database: \"\"}\nkinds", `bbs.yaml:15: dbs[1].mongo.database: "(empty)": want a database name, or no such key`},
		{"long database", "{endpoint: \"$(MONGO_URI)\"}\nkinds", "{endpoint: \"$(MONGO_URI)\", database: " + strings.Repeat("a", 64) + "}\nkinds", `bbs.yaml:15: dbs[1].mongo.database: "` + strings.Repeat("a", 64) + `": want a database name of at most 63 bytes`},
		{"etcd without its keys", inMongo, inEtcd(""), `bbs.yaml:15: dbs[1].etcd.endpoints: missing, want a list of host:port`},
		{"etcd of records without port", inMongo, inEtcd("endpoints: [db]"), `bbs.yaml:15: dbs[1].etcd.endpoints[0]: "db": want host:port`},
		{"etcd of records with a key alone", inMongo, inEtcd("endpoints: ['db:1'], keyFile: a"), `bbs.yaml:15: dbs[1].etcd.certFile: missing, want the certificate of keyFile`},
		{"etcd of records with a user alone", inMongo, inEtcd("endpoints: ['db:1'], user: a"), `bbs.yaml:15: dbs[1].etcd.passwordFile: missing, want a file with the password of user`},
		{"etcd of records, unknown key", inMongo, inEtcd("endpoints: ['db:1'], database: a"), `bbs.yaml:15: dbs[1].etcd.database: unknown key, want one of prefix, kinds, maxTxnOps, maxRequestBytes, endpoints, caFile, certFile, keyFile, user, passwordFile`},
		{"etcd with keys of MongoDB", inMongo, inEtcd("endpoints: ['db:1']") + "\n  mongo: {endpoint: 'mongodb://x'}", `bbs.yaml:16: dbs[1].mongo: want no such key: the backend is etcd`},
		{"etcd with a pool", inMongo, inEtcd("endpoints: ['db:1']") + "\n  connectionPoolSize: 5", `bbs.yaml:16: dbs[1].connectionPoolSize: want no such key: the backend is etcd`},
		{"MongoDB with keys of etcd", "  apiVersion: v2", "  apiVersion: v2\n  etcd: {endpoints: ['db:1']}", `bbs.yaml:15: dbs[1].etcd: want no such key: the backend is mongo`},
		{"bad prefix", inMongo, inEtcd("endpoints: ['db:1'], prefix: bbs/v2/"), `bbs.yaml:15: dbs[1].etcd.prefix: "bbs/v2/": want names of letters, digits and ._- with a slash before each, such as /prod/bbs/v1, 63 bytes at most`},
		{"empty prefix", inMongo, inEtcd("endpoints: ['db:1'], prefix: ''"), `bbs.yaml:15: dbs[1].etcd.prefix: "(empty)": want names of letters, digits and ._- with a slash before each, such as /prod/bbs/v1, 63 bytes at most`},
		{"long prefix", inMongo, inEtcd("endpoints: ['db:1'], prefix: /" + strings.Repeat("a", 63)), `bbs.yaml:15: dbs[1].etcd.prefix: "/` + strings.Repeat("a", 63) + `": want names of letters, digits and ._- with a slash before each, such as /prod/bbs/v1, 63 bytes at most`},
		{"prefix of the coordination store", inMongo, inEtcd("endpoints: ['db:1'], prefix: /dbcontroller/1/records"), `bbs.yaml:15: dbs[1].etcd.prefix: "/dbcontroller/1/records": want another one: below /dbcontroller/ are the keys of the coordination store`},
		{"kind in etcd without keys", inMongo, inEtcd("endpoints: ['db:1'], kinds: [{name: orders}]"), `bbs.yaml:15: dbs[1].etcd.kinds[0].prefix: missing, want what the application's keys begin with`},
		{"kind in etcd without a name", inMongo, inEtcd("endpoints: ['db:1'], kinds: [{prefix: /orders}]"), `bbs.yaml:15: dbs[1].etcd.kinds[0].name: missing, want a collection name`},
		{"bad keys of a kind in etcd", inMongo, inEtcd("endpoints: ['db:1'], kinds: [{name: orders, prefix: orders/}]"), `bbs.yaml:15: dbs[1].etcd.kinds[0].prefix: "orders/": want names of letters, digits and ._- with a slash before each, such as /shop/orders, 63 bytes at most`},
		{"bad format of a kind in etcd", inMongo, inEtcd("endpoints: ['db:1'], kinds: [{name: orders, prefix: /orders, format: xml}]"), `bbs.yaml:15: dbs[1].etcd.kinds[0].format: "xml": want one of json, bson`},
		{"kind in etcd twice", inMongo, inEtcd("endpoints: ['db:1'], kinds: [{name: a, prefix: /a}, {name: a, prefix: /b}]"), `bbs.yaml:15: dbs[1].etcd.kinds[1].name: "a": want each kind once`},
		{"kinds in etcd within each other", inMongo, inEtcd("endpoints: ['db:1'], kinds: [{name: a, prefix: /a}, {name: b, prefix: /a/b}]"), `bbs.yaml:15: dbs[1].etcd.kinds[1].prefix: "/a/b": want another one: /a has other keys, and neither may be below the other`},
		{"kind in etcd within the namespace", inMongo, inEtcd("endpoints: ['db:1'], prefix: /a, kinds: [{name: a, prefix: /a/b}]"), `bbs.yaml:15: dbs[1].etcd.kinds[0].prefix: "/a/b": want another one: /a has other keys, and neither may be below the other`},
		{"few operations", inMongo, inEtcd("endpoints: ['db:1'], maxTxnOps: 1"), `bbs.yaml:15: dbs[1].etcd.maxTxnOps: "1": want a whole number from 16 to 100000`},
		{"small requests", inMongo, inEtcd("endpoints: ['db:1'], maxRequestBytes: 1"), `bbs.yaml:15: dbs[1].etcd.maxRequestBytes: "1": want a whole number from 65536 to 67108864`},
		{"prefix within another", "kinds:", "- {namespace: x, backend: etcd, apiVersion: v3, etcd: {endpoints: ['http://DB:1'], prefix: /a}}\n- {namespace: y, backend: etcd, apiVersion: v4, etcd: {endpoints: ['c:1', 'db:1'], prefix: /a/b}}\nkinds:", `bbs.yaml:17: dbs[3].etcd.prefix: "/a/b": dbs[2] in line 16 is the same database on the same endpoint, want a database for each entry`},
		{"an application's keys within another entry", "kinds:", "- {namespace: x, backend: etcd, apiVersion: v3, etcd: {endpoints: ['db:1'], prefix: /a}}\n- {namespace: y, backend: etcd, apiVersion: v4, etcd: {endpoints: ['db:1'], prefix: /b, kinds: [{name: a, prefix: /a/b}]}}\nkinds:", `bbs.yaml:17: dbs[3].etcd.prefix: "/b": dbs[2] in line 16 is the same database on the same endpoint, want a database for each entry`},
		{"version twice", "apiVersion: v2", "apiVersion: v1", `bbs.yaml:14: dbs[1].apiVersion: "v1": dbs[0] in line 6 has it already, want one entry for each version and location`},
		{"location twice", "kinds:", "- {namespace: x, backend: mongo, apiVersion: v2, location: b, mongo: {endpoint: 'mongodb://x'}}\n- {namespace: y, backend: mongo, apiVersion: v2, location: b, mongo: {endpoint: 'mongodb://x'}}\nkinds:", `bbs.yaml:17: dbs[3].location: "b": dbs[2] in line 16 has it already, want one entry for each version and location`},
		{"bad location", "apiVersion: v2", "apiVersion: v2\n  location: EU", `bbs.yaml:15: dbs[1].location: "EU": want up to 32 lower-case letters, digits and dashes, such as b, or no such key`},
		{"version torn apart", "kinds:", "- {namespace: x, backend: mongo, apiVersion: v1, location: b, mongo: {endpoint: 'mongodb://x'}}\nkinds:", `bbs.yaml:16: dbs[2].apiVersion: "v1": dbs[0] in line 6 has it too, want the entries of a version one after the other`},
		{"versions that do not follow each other", "packages.yaml}", "packages.yaml, versions: [v2, v1]}", `bbs.yaml:17: kinds[0].versions: "v2, v1": want two versions that follow each other in dbs, such as [v1, v2]`},
		{"one version", "packages.yaml}", "packages.yaml, versions: [v1]}", `bbs.yaml:17: kinds[0].versions: "v1": want two versions that follow each other in dbs, such as [v1, v2]`},
		{"no versions among three", "kinds:", "- {namespace: x, backend: mongo, apiVersion: v3, mongo: {endpoint: 'mongodb://x'}}\nkinds:", `bbs.yaml:18: kinds[0].versions: missing, want two versions that follow each other in dbs, such as [v1, v2]`},
		{"lens of a move", "apiVersion: v2", "apiVersion: v1\n  location: b", `bbs.yaml:18: kinds[0].to: want no such key: there is one version, whose collections are moved as they are`},
		{"namespace twice", "bbs/v2", "bbs/v1", `bbs.yaml:12: dbs[1].namespace: "envs/prod-us-west2/bbs/v1": dbs[0] in line 6 has it already, want a namespace for each entry`},
		{"database twice", "{endpoint: \"$(MONGO_URI)\"}\nkinds", "{endpoint: \"mongodb://DB2:27018\", database: dbc_envs_prod_us_west2_bbs_v1_02bbbbe28b2ef889}\nkinds", `bbs.yaml:15: dbs[1].mongo.database: "dbc_envs_prod_us_west2_bbs_v1_02bbbbe28b2ef889": dbs[0] in line 6 is the same database on the same endpoint, want a database for each entry`},
		{"missing from", "from: packages, ", "", `bbs.yaml:17: kinds[0].from: missing, want a collection name`},
		{"missing lens", ", lens: lenses/packages.yaml", "", `bbs.yaml:17: kinds[0].lens: missing, want the path of a lens file`},
		{"bad fence", "packages.yaml}", "packages.yaml, fence: uuid}", `bbs.yaml:17: kinds[0].fence: "uuid": want one of view, validator, writeBlock, role`},
		{"system collection", "from: packages", "from: system.views", `bbs.yaml:17: kinds[0].from: "system.views": want a collection name without $ that does not begin with system.`},
		{"discontinued with a lens", "lens: lenses/packages.yaml}", "discontinued: true}", `bbs.yaml:17: kinds[0].to: want no such key: the kind is discontinued`},
		{"discontinued is a flag", "packages.yaml}", "packages.yaml, discontinued: 1}", `bbs.yaml:17: kinds[0].discontinued: "1": want true or false`},
		{"indexes of a discontinued kind", "from: packages, to: packages, lens: lenses/packages.yaml}", "from: a, discontinued: true, indexes: {}}", `bbs.yaml:17: kinds[0].indexes: want no such key: the kind is discontinued`},
		{"indexes are no mapping", "packages.yaml}", "packages.yaml, indexes: [a]}", `bbs.yaml:17: kinds[0].indexes: "[a]": want collections with their indexes, such as {lines: [{key: {order: 1}, unique: true}]}`},
		{"index without key", "packages.yaml}", "packages.yaml, indexes: {a: [{b: 1}]}}", `bbs.yaml:17: kinds[0].indexes.a[0]: want collections with their indexes, such as {lines: [{key: {order: 1}, unique: true}]}`},
		{"indexes twice", "packages.yaml}", "packages.yaml, indexes: {a: [], a: []}}", `bbs.yaml:17: kinds[0].indexes.a: given twice`},
		{"variable in an index", "packages.yaml}", "packages.yaml, indexes: {a: [{key: {x: 1}, name: $(NONE)}]}}", `bbs.yaml:17: kinds[0].indexes.a[0].name: "$(NONE)": variable NONE is not set: set it in the environment`},
		{"kind twice", "packages.yaml}", "packages.yaml}\n- {from: other, to: packages, lens: l.yaml}", `bbs.yaml:18: kinds[1].to: "packages": kinds[0] in line 17 has it already, want each collection once`},
		{"not YAML", "{ringSize: 16}", "{ringSize: 16", `bbs.yaml:3: not YAML: ',' or '}' must be specified`},
		{"not YAML near a password", endpoint1, "  mongo: {endpoint: \"mongodb://me:hunter2@db\n  disabled", `bbs.yaml:15: not YAML: ',' or '}' must be specified`},
		{"two documents", "kinds:", "---\nkinds:", `bbs.yaml: want one YAML document, found 2`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(whole, tc.old, tc.new, 1)
			if text == whole {
				t.Fatalf("%q does not stand in the example", tc.old)
			}
			_, err := config.Parse("/etc/dbc/bbs.yaml", []byte(text), env)
			if err == nil {
				t.Fatalf("no error, want %s", tc.want)
			}
			if err.Error() != tc.want {
				t.Errorf("error\n     %s\nwant %s", err, tc.want)
			}
		})
	}
}

func TestRefusesNothingAtAll(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "bbs.yaml: want one YAML document, found 0",
		"# x\n":                                "bbs.yaml: want one YAML document, found 0",
		"[]":                                   `bbs.yaml:1: "[]": want a mapping with the keys deployment, sharding, etcd, dataDir, copy, switch, operator, api, dbs, initialVersion, kinds, updates, imports, referrers, access, parked, hooks, rollouts, search, regions`,
		"deployment: services/a/deployments/b": "bbs.yaml:1: dbs: missing, want a list with one database for each version",
	} {
		if _, err := config.Parse("bbs.yaml", []byte(text), env); err == nil || err.Error() != want {
			t.Errorf("Parse(%q)\n     %v\nwant %s", text, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bbs.yaml")
	if _, err := config.Load(path, env); err == nil || !strings.HasPrefix(err.Error(), "load configuration: ") {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, env)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(path), "lenses/packages.yaml"); c.Kinds[0].Lens != want {
		t.Errorf("lens = %s, want %s", c.Kinds[0].Lens, want)
	}
}

func TestLoadReadsTheEnvironment(t *testing.T) {
	for name, value := range vars {
		t.Setenv(name, value)
	}
	if _, err := config.Parse("bbs.yaml", []byte(whole), nil); err != nil {
		t.Fatal(err)
	}
}

// FuzzParse: whatever the text, an answer or one line, and never a password.
func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add(strings.ReplaceAll(whole, "{", "["))
	f.Fuzz(func(t *testing.T, text string) {
		_, err := config.Parse("bbs.yaml", []byte(text), env)
		if err != nil && (strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("error %q", err)
		}
	})
}

// inMongo is where the second database of the example is, inEtcd what puts it into etcd.
const inMongo = "  backend: mongo\n  apiVersion: v2\n  mongo: {endpoint: \"$(MONGO_URI)\"}"

func inEtcd(keys string) string {
	return "  backend: etcd\n  apiVersion: v2\n  etcd: {" + keys + "}"
}

// TestDatabaseInEtcd: where it is, how it is called, and what is shown of it.
func TestDatabaseInEtcd(t *testing.T) {
	t.Parallel()
	text := strings.Replace(whole, inMongo, inEtcd("endpoints: ['https://Records-1:2379', 'https://records-2:2379'], caFile: ca.crt, user: bbs, passwordFile: p, maxTxnOps: 512, maxRequestBytes: 8388608, kinds: [{name: orders, prefix: /shop/orders}, {name: pods, prefix: /pods, format: bson}]"), 1)
	c, err := config.Parse("/etc/dbc/bbs.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	db := c.DBs[1]
	want := config.DB{
		Version: "v2", APIVersion: "v2", Namespace: "envs/prod-us-west2/bbs/v2", Backend: "etcd", Database: "/" + config.DatabaseName("envs/prod-us-west2/bbs/v2"),
		Etcd:      config.Etcd{Endpoints: []string{"https://Records-1:2379", "https://records-2:2379"}, CAFile: "/etc/dbc/ca.crt", User: "bbs", PasswordFile: "/etc/dbc/p"},
		MaxTxnOps: 512, MaxRequest: 8 << 20,
		Kinds: []config.EtcdKind{{"orders", "/shop/orders", "json"}, {"pods", "/pods", "bson"}},
	}
	if diff := cmp.Diff(want, db, cmp.AllowUnexported(config.Secret{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if db.Hosts() != "records-1:2379,records-2:2379" || db.Location() != "etcd://records-1:2379,records-2:2379/"+db.Database[1:] || db.Place() != "etcd:"+db.Database {
		t.Errorf("hosts %s, location %s, place %s", db.Hosts(), db.Location(), db.Place())
	}
	if len(db.Plaintext()) > 0 || db.HasFiles() {
		t.Errorf("plaintext %v, files %t", db.Plaintext(), db.HasFiles())
	}
	db.Etcd = config.Etcd{Endpoints: []string{"records-1:2379"}}
	if far := db.Plaintext(); len(far) != 1 {
		t.Errorf("plaintext %v", far)
	}
}
