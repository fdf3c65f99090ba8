package integration_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller/integration/localmongo"
)

// TestBadInputOfRun starts controllers that cannot work, and must say why before they
// change anything.
func TestBadInputOfRun(t *testing.T) {
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
			name: "typo in the configuration", edit: replace("sharding:", "shardign:"),
			want: []string{"config.yaml:2", "shardign", "sharding"},
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

// TestBadInputOfCommands asks a controller for what it cannot do.
func TestBadInputOfCommands(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The document "bad" cannot be transformed, so that no upgrade switches by itself.
	s := newSystem(ctx, t, settings{lens: "lens: 1\noperations:\n  - convert: {field: n, from: long, to: int}\n"})
	insert(ctx, s, "v1", packageDoc("v1", "good", 1))
	insert(ctx, s, "v1", packageDoc("v1", "bad", 1<<40))
	controller := s.run("controller").ready(ctx)
	api, operator := controller.addresses()
	dbc := func(args ...string) result {
		return execute(ctx, t, []string{"DBCONTROLLER_SERVER=" + api}, args...)
	}
	begin := func(args ...string) result {
		return dbc(append([]string{"begin-upgrade", "deployment", "--name", s.name}, args...)...)
	}

	for name, tc := range map[string]struct {
		do   func() result
		want []string
	}{
		"unknown deployment": {func() result {
			return dbc("begin-upgrade", "deployment", "--name", "services/bbs.example.com/deployments/nowhere", "--target-version", "v2")
		}, []string{"services/bbs.example.com/deployments/nowhere", "does not exist", "dbcontroller list"}},
		"no name of a deployment": {func() result {
			return dbc("begin-upgrade", "deployment", "--name", "nowhere", "--target-version", "v2")
		},
			[]string{"nowhere", "services/{service}/deployments/{region}"}},
		"unknown version":     {func() result { return begin("--target-version", "v9") }, []string{"v9", "v2"}},
		"current version":     {func() result { return begin("--target-version", "v1") }, []string{"v1"}},
		"no version":          {func() result { return begin() }, []string{"--target-version"}},
		"wrong shard count":   {func() result { return begin("--target-version", "v2", "--total-shards-count", "99") }, []string{"99", "8"}},
		"nothing to abort":    {func() result { return dbc("abort", "--name", s.name) }, []string{"no upgrade is running"}},
		"nothing to waive":    {func() result { return dbc("parked", "waive", "--kind", "packages", "--key", "none") }, []string{"packages", "none"}},
		"nobody there":        {func() result { return execute(ctx, t, nil, "get", "deployment", "--server", "127.0.0.1:1") }, []string{"127.0.0.1:1", "dbcontroller run"}},
		"no server":           {func() result { return execute(ctx, t, []string{"DBCONTROLLER_SERVER="}, "get", "deployment") }, []string{"--server", "DBCONTROLLER_SERVER"}},
		"the operator's port": {func() result { return execute(ctx, t, nil, "get", "deployment", "--server", operator) }, []string{operator, "not a controller's API"}},
		"unknown object":      {func() result { return dbc("get", "deploymnet") }, []string{"deploymnet", "deployment"}},
		"unknown command":     {func() result { return dbc("upgrade") }, []string{"upgrade"}},
		"unknown flag":        {func() result { return dbc("get", "deployment", "--nmae", "x") }, []string{"--nmae"}},
		"taken port": {func() result {
			return execute(ctx, t, s.env, "run", "--config", s.config, "--api-listen", api, "--operator-listen", "127.0.0.1:0")
		}, []string{api, "--api-listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.unchanged(ctx, t, func() { tc.do().refuses(t, tc.want...) })
		})
	}
	s.twice(ctx, begin)
	s.parksAndWaives(ctx, dbc)
}

// twice begins the same upgrade twice, which changes nothing, and then another.
func (s *system) twice(ctx context.Context, begin func(args ...string) result) {
	s.t.Helper()
	id := func(r result) string {
		id, _ := r.json(s.t)["upgradeState"].(map[string]any)["id"].(string)
		return id
	}
	first := id(begin("--target-version", "v2", "--total-shards-count", "8", "--json"))
	var again string
	d, err := s.record.Get(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	again = id(begin("--target-version", "v2", "--total-shards-count", "8", "--json"))
	if first == "" || first != again {
		s.t.Errorf("begun twice: upgrade %q, then %q", first, again)
	}
	for _, other := range [][]string{
		{"--target-version", "v2", "--total-shards-count", "9"},
		{"--target-version", "v3"},
	} {
		begin(other...).refuses(s.t)
	}
	now, err := s.record.Get(ctx)
	if err != nil || now.Upgrade == nil || now.Upgrade.ID != d.Upgrade.ID || now.Upgrade.State != d.Upgrade.State {
		s.t.Errorf("the upgrade was %+v and is %+v: %v", d.Upgrade, now.Upgrade, err)
	}
}

// parksAndWaives looks for the document that cannot be transformed, sees that it blocks
// the switch, and lets the upgrade go on without it.
func (s *system) parksAndWaives(ctx context.Context, dbc func(args ...string) result) {
	s.t.Helper()
	type parked = []any
	list := func() parked {
		ps, _ := dbc("parked", "--json").json(s.t)["parked"].(parked)
		return ps
	}
	var found parked
	eventually(ctx, s.t, "the document is parked", func() error {
		if found = list(); len(found) == 0 {
			return errTooFew
		}
		return nil
	})
	p, _ := found[0].(map[string]any)
	key, _ := p["key"].(string)
	reason, _ := p["error"].(string)
	if len(found) != 1 || p["kind"] != packagesKind || !strings.Contains(key, "bad") || !strings.Contains(reason, "n") {
		s.t.Errorf("parked: %v", found)
	}
	if text := dbc("parked"); text.code != 0 || !strings.Contains(text.stdout, key) || !strings.Contains(text.stdout, packagesKind) {
		s.t.Errorf("parked prints %+v", text)
	}
	s.t.Logf("parked: %s %s: %s", p["kind"], key, reason)
	eventually(ctx, s.t, "the upgrade says that it waits for the parked document", func() error {
		if text := dbc("get", "deployment").stdout; !strings.Contains(text, "INITIAL_SYNCING") || !strings.Contains(text, "parked") {
			return errTooFew
		}
		return nil
	})
	if waived := dbc("parked", "waive", "--kind", packagesKind, "--key", key); waived.code != 0 {
		s.t.Fatalf("waive: %+v", waived)
	}
	s.await(ctx, "the flip", flipped("v2"))
	var docs []bson.M
	cursor, err := s.db["v2"].Collection(packagesKind).Find(ctx, bson.D{}, options.Find())
	if err == nil {
		err = cursor.All(ctx, &docs)
	}
	if err != nil || len(docs) != 1 || docs[0]["_id"] != "good" {
		s.t.Errorf("the new version has %v: %v", docs, err)
	}
}
