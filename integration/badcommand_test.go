package integration_test

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

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

	s.awaitKept(ctx)
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
		"unknown version":         {func() result { return begin("--target-version", "v9") }, []string{"v9", "v2"}},
		"current version":         {func() result { return begin("--target-version", "v1") }, []string{"v1"}},
		"no version":              {func() result { return begin() }, []string{"--target-version"}},
		"wrong shard count":       {func() result { return begin("--target-version", "v2", "--total-shards-count", "99") }, []string{"99", "8"}},
		"nothing to abort":        {func() result { return dbc("abort", "--name", s.name) }, []string{"no upgrade is running"}},
		"pace without anything":   {func() result { return dbc("pace") }, []string{"--max-rate"}},
		"no window":               {func() result { return dbc("pace", "--window", "25:00-26:00") }, []string{"25:00-26:00", "22:00-05:00"}},
		"pause of another":        {func() result { return dbc("pause", "--name", "services/a/deployments/b") }, []string{"services/a/deployments/b", "does not exist"}},
		"nothing to switch":       {func() result { return dbc("switch") }, []string{"no such upgrade is running"}},
		"nothing to hold":         {func() result { return dbc("set-policy", "--hold") }, []string{"no such upgrade is running"}},
		"deadline too short":      {func() result { return begin("--target-version", "v2", "--deadline", "1ms") }, []string{"1 ms", "1000"}},
		"pace that is refused":    {func() result { return begin("--target-version", "v9", "--max-rate", "5") }, []string{"v9"}},
		"nothing to go back to":   {func() result { return dbc("rollback", "--to-snapshot") }, []string{"no switch was made yet"}},
		"complete what is in use": {func() result { return dbc("complete", "--version", "v1") }, []string{"v1 is the current version"}},
		"complete what is next":   {func() result { return dbc("complete", "--version", "v2", "--confirm", "x") }, []string{"v2 is still in use"}},
		"waive no kind":           {func() result { return dbc("parked", "waive", "--kind", "pakages", "--all") }, []string{"pakages", "packages"}},
		"waive a kind uncounted":  {func() result { return dbc("parked", "waive", "--kind", "packages", "--all") }, []string{"without the ", "give --count "}},
		"waive another number":    {func() result { return dbc("parked", "waive", "--kind", "packages", "--all", "--count", "99") }, []string{"--count 99 was given", "give --count "}},
		"nothing to waive":        {func() result { return dbc("parked", "waive", "--kind", "packages", "--key", "none") }, []string{"packages", "none"}},
		"nobody there":            {func() result { return execute(ctx, t, nil, "get", "deployment", "--server", "127.0.0.1:1") }, []string{"127.0.0.1:1", "dbcontroller run"}},
		"no server":               {func() result { return execute(ctx, t, []string{"DBCONTROLLER_SERVER="}, "get", "deployment") }, []string{"--server", "DBCONTROLLER_SERVER"}},
		"the operator's port":     {func() result { return execute(ctx, t, nil, "get", "deployment", "--server", operator) }, []string{operator, "not a controller's API"}},
		"unknown object":          {func() result { return dbc("get", "deploymnet") }, []string{"deploymnet", "deployment"}},
		"unknown command":         {func() result { return dbc("upgrade") }, []string{"upgrade"}},
		"unknown flag":            {func() result { return dbc("get", "deployment", "--nmae", "x") }, []string{"--nmae"}},
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
