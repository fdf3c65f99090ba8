package integration_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/localmongo"
)

// TestBadInputOfRun starts controllers that cannot work, and must say why before they
// change anything.
func TestBadInputOfRun(t *testing.T) {
	t.Parallel()
	const elsewhere = "mongodb://app:" + secret + "@127.0.0.1:1/?replicaSet=rs0"
	for _, tc := range []struct {
		name string
		set  settings
		edit func(config string) string // of the configuration file
		make func(ctx context.Context, s *system)
		env  []string
		want []string
	}{
		{
			name: "unreachable MongoDB", env: []string{"MONGO_V1=" + elsewhere},
			want: []string{"database of v1", "127.0.0.1:1", "refused", "start the server, or correct mongo.endpoint in config.yaml"},
		},
		{
			name: "wrong password", env: []string{"MONGO_V2=$V1"},
			want: []string{"database of v2", "authenticat", "correct mongo.endpoint"},
		},
		{
			name: "unreachable etcd", edit: replace("etcd: {endpoints: [", `etcd: {endpoints: ["http://127.0.0.1:1"]} #`),
			want: []string{"etcd", "127.0.0.1:1", "start etcd, or correct etcd.endpoints in config.yaml"},
		},
		{
			name: "no etcd", edit: replace("etcd: {endpoints: [", "dataDir: nowhere #"),
			want: []string{"no embedded etcd was started in nowhere", "--embedded-etcd", "etcd.endpoints"},
		},
		{
			name: "unreachable etcd of records", set: settings{kinds: "[]", records: map[string]string{"v2": inEtcd("http://127.0.0.1:1", "")}},
			want: []string{"database of v2", "127.0.0.1:1", "start etcd, or correct etcd.endpoints in config.yaml"},
		},
		{
			name: "no password of the etcd of records", set: settings{kinds: "[]", records: map[string]string{"v2": inEtcd("http://127.0.0.1:1", ", user: mover, passwordFile: no-such")}},
			want: []string{"database of v2", "no-such", "correct the file, or the key in config.yaml"},
		},
		{
			name: "typo in the configuration", edit: replace("sharding:", "shardign:"),
			want: []string{"config.yaml:2", "shardign", "sharding"},
		},
		{
			name: "hook whose program is not there", edit: replace("sharding:", "hooks: [{name: a, command: [/no/such/program]}]\nsharding:"),
			want: []string{"config.yaml", "hooks[0].command", "/no/such/program", "no such file"},
		},
		{
			name: "import without versions", edit: replace("sharding:", "imports: [{service: a, deployment: services/a/deployments/d}]\nsharding:"),
			want: []string{"config.yaml:2", "imports[0].versions", "two of its API versions"},
		},
		{
			name: "referrer that is the deployment itself", edit: func(config string) string {
				_, own, _ := strings.Cut(config, "deployment: ")
				own, _, _ = strings.Cut(own, "\n")
				return config + "referrers: [{deployment: " + own + ", kind: k, field: f, of: packages}]\n"
			},
			want: []string{"config.yaml", "referrers[0].deployment", "want another deployment"},
		},
		{
			name: "keys of a data update without references", edit: replace("sharding:", "updates: [{name: u, kind: packages, version: v1, lens: packages.yaml, references: new}]\nsharding:"),
			want: []string{"update u", "packages.yaml", "it has no references that could hold new keys"},
		},
		{
			name: "reads of another kind", edit: replace("$(MONGO_V2)\"", "$(MONGO_V2)\", reads: local"),
			want: []string{"config.yaml", "dbs[1].mongo.reads", `"local": want one of linearizable, majority`},
		},
		{
			name: "unset variable", edit: replace("$(MONGO_V2)", "$(MONGO_V3)"),
			want: []string{"config.yaml", "MONGO_V3", "not set"},
		},
		{
			name: "unknown operation of a lens", set: settings{lens: "lens: 1\noperations:\n  - uppercase: {field: name}\n"},
			want: []string{"packages.yaml:3", "uppercase", "rename"},
		},
		{
			name: "no lens", edit: replace("packages.yaml", "no-such.yaml"),
			want: []string{"no-such.yaml", "no such file"},
		},
		{
			name: "no source collection",
			want: []string{"collection packages", "not in the database of the current version", "correct kinds"},
		},
		{
			name: "source is a view", make: create(packagesKind, bson.E{Key: "viewOn", Value: "elsewhere"}, bson.E{Key: "pipeline", Value: bson.A{}}),
			want: []string{"kinds in config.yaml", "packages", "view"},
		},
		{
			name: "source is capped", make: create(packagesKind, bson.E{Key: "capped", Value: true}, bson.E{Key: "size", Value: 4096}),
			want: []string{"kinds in config.yaml", "packages", "capped"},
		},
		{
			name: "source is a time series", make: create(packagesKind, bson.E{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "at"}}}),
			want: []string{"kinds in config.yaml", "packages", "timeseries"},
		},
		{
			name: "source has a collation", make: create(packagesKind, bson.E{Key: "collation", Value: bson.D{{Key: "locale", Value: "en"}}}),
			want: []string{"kinds in config.yaml", "packages", "collation"},
		},
		{
			name: "target exists", make: func(ctx context.Context, s *system) {
				insert(ctx, s, "v1", packageDoc("v1", "a", 0))
				insert(ctx, s, "v2", packageDoc("v2", "b", 0))
			},
			want: []string{"collection packages", "new version", "rename it or use another database"},
		},
		{
			name: "both versions hold data", set: settings{decide: true}, make: func(ctx context.Context, s *system) {
				insert(ctx, s, "v1", packageDoc("v1", "a", 0))
				insert(ctx, s, "v2", packageDoc("v2", "b", 0))
			},
			want: []string{"v1 (packages) and v2 (packages)", "nothing shows which version is current", "initialVersion"},
		},
		{
			name: "unknown initial version", edit: replace("initialVersion: v1", "initialVersion: v3"),
			want: []string{"config.yaml:6", "initialVersion", "v3", "want one of dbs: v1, v2"},
		},
		{
			name: "index that the lens breaks", set: settings{lens: "lens: 1\noperations:\n  - remove: {field: section}\n"},
			make: func(ctx context.Context, s *system) {
				insert(ctx, s, "v1", packageDoc("v1", "a", 0))
				_, err := s.db["v1"].Collection(packagesKind).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "section", Value: 1}}})
				if err != nil {
					s.t.Fatal(err)
				}
			},
			want: []string{"packages", "index", "section"},
		},
		{
			name: "other ring size", make: func(ctx context.Context, s *system) {
				insert(ctx, s, "v1", packageDoc("v1", "a", 0))
				if _, err := s.record.Create(ctx, "v1", 2*ring); err != nil {
					s.t.Fatal(err)
				}
			},
			want: []string{"sharding.ringSize is 8", "16", "correct the configuration"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if tc.name == "wrong password" {
				tc.env = []string{"MONGO_V2=" + withLogin(authServer(ctx, t).URI(), "nobody:"+secret)}
			}
			s := newSystem(ctx, t, tc.set)
			if tc.make != nil {
				tc.make(ctx, s)
			}
			if tc.edit != nil {
				text, err := os.ReadFile(s.config)
				if err != nil {
					t.Fatal(err)
				}
				s.write("config.yaml", tc.edit(string(text)))
			}
			s.refusesToRun(ctx, tc.env, tc.want...)
		})
	}
}

// refusesToRun makes sure that a controller does not start, and says why.
func (s *system) refusesToRun(ctx context.Context, env []string, want ...string) {
	s.t.Helper()
	s.unchanged(ctx, s.t, func() {
		execute(ctx, s.t, append(s.env[:len(s.env):len(s.env)], env...), "run", "--config", s.config,
			"--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0").refuses(s.t, want...)
	})
}

func replace(old, by string) func(string) string {
	return func(text string) string { return strings.Replace(text, old, by, 1) }
}

func create(name string, extra ...bson.E) func(context.Context, *system) {
	return func(ctx context.Context, s *system) {
		if err := s.db["v1"].RunCommand(ctx, append(bson.D{{Key: "create", Value: name}}, extra...)).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
}

func insert(ctx context.Context, s *system, version string, doc bson.D) {
	s.t.Helper()
	if _, err := s.db[version].Collection(packagesKind).InsertOne(ctx, doc); err != nil {
		s.t.Fatal(err)
	}
}

// TestStandaloneIsRefused: a mongod that is no replica set has no change streams.
func TestStandaloneIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := start(ctx, t, localmongo.Options{Standalone: true})
	s := newSystem(ctx, t, settings{uris: map[string]string{"v2": server.URI()}})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	s.refusesToRun(ctx, nil, "database of v2", "standalone", "--replSet", "rs.initiate()")
	if r := execute(ctx, t, s.env, "plan", "--config", s.config); r.code == 0 || !strings.Contains(r.stdout, "it is a standalone") {
		t.Errorf("a plan without a controller: %+v", r)
	}
}

// TestMissingPrivilegesAreRefused: what the user lacks is named.
func TestMissingPrivilegesAreRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := authServer(ctx, t)
	s := newSystem(ctx, t, settings{uris: map[string]string{"v1": server.URI(), "v2": server.URI()}})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	admin := s.db["v1"].Client().Database("admin")
	err := admin.RunCommand(ctx, bson.D{
		{Key: "createUser", Value: "reader"}, {Key: "pwd", Value: secret},
		{Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "read"}, {Key: "db", Value: s.db["v1"].Name()}}}},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
	s.refusesToRun(ctx, []string{"MONGO_V1=" + withLogin(server.URI(), "reader:"+secret)},
		"database of v1", "createCollection", "grant the role dbAdmin on "+s.db["v1"].Name())
}

// start starts a server of the test's own.
func start(ctx context.Context, t *testing.T, o localmongo.Options) *localmongo.Server {
	t.Helper()
	server, err := localmongo.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func authServer(ctx context.Context, t *testing.T) *localmongo.Server {
	t.Helper()
	return start(ctx, t, localmongo.Options{Auth: true})
}

// withLogin puts another login into a connection string.
func withLogin(uri, login string) string {
	_, rest, _ := strings.Cut(uri, "@")
	return "mongodb://" + login + "@" + rest
}
