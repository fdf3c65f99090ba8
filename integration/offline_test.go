package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/upgradestate"
)

// breakGlass are the commands of docs/break-glass.md, in their order.
func (s *system) breakGlass() [][]string {
	s.t.Helper()
	page, err := os.ReadFile("../docs/break-glass.md")
	if err != nil {
		s.t.Fatal(err)
	}
	var out [][]string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			command := strings.Fields(strings.ReplaceAll(line, "shop.yaml", s.config))
			if len(command) == 0 || command[0] != "dbcontroller" {
				s.t.Fatalf("the page has a command that is not ours: %s", line)
			}
			out = append(out, command[1:])
		}
	}
	if len(out) != 2 || strings.Count(string(page), "\n") > 40 {
		s.t.Fatalf("the page has commands %v, and should fit on a screen", out)
	}
	return out
}

// said is a command with the confirmation of a dry run in place of VALUE.
func said(command []string, confirm string) []string {
	command = slices.Clone(command)
	command[slices.Index(command, "VALUE")] = confirm
	return command
}

// switchedAway has a deployment at v2, whose rollback was not kept, and no controller.
func switchedAway(ctx context.Context, t *testing.T, uris map[string]string) (s *system, left []byte) {
	t.Helper()
	s = newSystem(ctx, t, settings{oneWay: true, uris: uris})
	for i := range 20 {
		insert(ctx, s, "v1", packageDoc("v1", fmt.Sprintf("p-%02d", i), 1))
	}
	c := s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	v1, _ := d.Namespace("v1")
	k, _ := v1.Kind(packagesKind)
	left = collection{s.db["v1"].Collection(k.Physical)}.content(ctx, t)
	insert(ctx, s, "v2", packageDoc("v2", "since", 2))
	s.awaitMarked(ctx, 2)
	execute(ctx, t, s.env, s.breakGlass()[0]...).refuses(t, "controller controller is alive", "use 'rollback' without --offline")
	s.kill(c)
	eventually(ctx, t, "the lease of the controller ends", func() error {
		alive, err := s.record.Controllers(ctx)
		if err == nil && len(alive) > 0 {
			err = errors.New("it is still there")
		}
		return err
	})
	return s, left
}

// TestOfflineRollback goes back to the old data by the page for emergencies, command for
// command, with no controller: the new version is fenced, servers follow, the data are as
// the switch left them, and controllers go on from there.
func TestOfflineRollback(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s, left := switchedAway(ctx, t, nil)
	server := s.server("server", 0).ready(ctx)
	commands := s.breakGlass()
	var confirm string
	s.unchanged(ctx, t, func() {
		r := execute(ctx, t, s.env, commands[0]...)
		for _, want := range []string{"loses: everything that was written to v2 since the switch at 2", "found: server server is alive", "will: fence v2", "will: make v1 the current version"} {
			if r.code != 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("it does not say %q: %+v", want, r)
			}
		}
		confirm = r.confirmation(t)
		staging := strings.Replace(confirm, "replicaSet/", "replicaSet/0", 1)
		want := "to accept this loss, give --accept-loss --confirm " + confirm
		for given, doubt := range map[string]string{"": "nothing is changed yet: ", staging: `nothing is changed yet, because "` + staging + `" confirms something else: `} {
			if r := execute(ctx, t, s.env, said(commands[1], given)...); r.code == 0 || !strings.Contains(r.stderr, doubt+want) {
				t.Errorf("confirmed with %q: %+v", given, r)
			}
		}
	})
	if want := s.name + "/replicaSet/"; !strings.HasPrefix(confirm, want) {
		t.Errorf("%s does not begin with %s", confirm, want)
	}
	s.fillHistory(ctx)
	r := execute(ctx, t, s.env, said(commands[1], confirm)...)
	r.exportsHistory(t)
	if r.code != 0 || !strings.Contains(r.stderr, "done: v1 is the current version, in epoch 3") {
		t.Fatalf("%+v", r)
	}
	if now := (collection{s.db["v1"].Collection(packagesKind)}).content(ctx, t); !bytes.Equal(left, now) {
		t.Error("v1 is not as the switch left it")
	}
	if _, err := s.db["v2"].Collection(packagesKind).InsertOne(ctx, packageDoc("v2", "late", 3)); err == nil {
		t.Error("an application of the new version can still write there")
	}
	eventually(ctx, t, "the server follows", func() error { return missing(ctx, server, []string{`active_version\{version="v1"\} 1`, `gate_open 1`}) })
	if r := execute(ctx, t, s.env, said(commands[1], confirm)...); r.code != 0 || !strings.Contains(r.stderr, "nothing: ") {
		t.Errorf("again: %+v", r)
	}
	d := s.await(ctx, "v1", flipped("v1"))
	told := false
	for _, e := range d.History {
		told = told || e.What == "rollback --offline" && e.By != "" && strings.Contains(e.Detail, "without a controller")
	}
	if !told || !d.LastSwitch.Back || !d.LastSwitch.Snapshot {
		t.Errorf("the history does not tell of it: %+v, %+v", d.History, d.LastSwitch)
	}
	insert(ctx, s, "v1", packageDoc("v1", "afterwards", 1))
	s.controller("later", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the next flip", flipped("v2"))
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 21 {
		t.Errorf("v2 has %d documents of 21 (%v)", n, err)
	}
}

// fillHistory leaves no room in the record's history.
func (s *system) fillHistory(ctx context.Context) {
	s.t.Helper()
	for i := range 50 {
		if _, err := s.record.Apply(ctx, upgradestate.Remark{What: "waive", Detail: fmt.Sprint(i)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// exportsHistory: the log of a command is the only copy of the entries that had no room, at every level.
func (r result) exportsHistory(t *testing.T) {
	t.Helper()
	if !strings.Contains(r.stderr, `"logger":"audit"`) || !strings.Contains(r.stderr, `"history"`) {
		t.Errorf("what had no room in the history is in no audit: %s", r.stderr)
	}
}

// emptied starts an empty server at the address of one that was killed, whose data are kept
// elsewhere.
func emptied(ctx context.Context, t *testing.T, server *localmongo.Server, kept string) {
	t.Helper()
	node := server.Nodes()[0]
	err := errors.Join(os.Rename(node.DataPath(), kept), os.Mkdir(node.DataPath(), 0o700))
	if err == nil {
		err = node.Start(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + node.Addr()).SetDirect(true))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	at, err := url.Parse(server.URI())
	if err != nil {
		t.Fatal(err)
	}
	set := bson.D{{Key: "_id", Value: at.Query().Get("replicaSet")}, {Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: node.Addr()}}}}}
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: set}}).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Primary(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestOfflineRollbackAlone: the new version's database is gone, or an empty server answers at its
// address. That has to be said, and when it comes back it is refused until somebody has looked.
func TestOfflineRollbackAlone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	other := start(ctx, t, localmongo.Options{Own: true})
	s, left := switchedAway(ctx, t, map[string]string{"v2": other.URI()})
	node := other.Nodes()[0]
	node.Kill()
	command := s.breakGlass()[1]
	kept := node.DataPath() + ".kept"
	emptied(ctx, t, other, kept)
	execute(ctx, t, s.env, command...).refuses(t, "database of v2", "it is empty or the wrong database", "v2 cannot be fenced then", "give --new-database-lost")
	s.refusesToRun(ctx, nil, "database of v2", "it is empty or the wrong database", "rollback --to-snapshot --offline --new-database-lost")
	node.Kill()
	if err := errors.Join(os.RemoveAll(node.DataPath()), os.Rename(kept, node.DataPath())); err != nil {
		t.Fatal(err)
	}
	execute(ctx, t, s.env, command...).refuses(t, "database of v2", "v2 cannot be fenced then", "give --new-database-lost")
	command = append(command, "--new-database-lost")
	confirm := execute(ctx, t, s.env, append(slices.Clone(command), "--dry-run")...).confirmation(t)
	r := execute(ctx, t, s.env, said(command, confirm)...)
	if r.code != 0 || !strings.Contains(r.stderr, "will: leave v2 unfenced") || !strings.Contains(r.stderr, "done: v1 is the current version, in epoch 3") {
		t.Fatalf("%+v", r)
	}
	if now := (collection{s.db["v1"].Collection(packagesKind)}).content(ctx, t); !bytes.Equal(left, now) {
		t.Error("v1 is not as the switch left it")
	}
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c := s.controller("later", breakPoint{}).listening(ctx)
	eventually(ctx, t, "the new database is refused", func() error {
		if !strings.Contains(c.output(), "it is older than the deployment") {
			return errors.New("nothing is said of it")
		}
		return nil
	})
}

// followedAway has a deployment at v2, whose v1 has followed until then, a running controller, and
// two documents.
func followedAway(ctx context.Context, t *testing.T) (s *system, other *localmongo.Server, c *child) {
	t.Helper()
	other = start(ctx, t, localmongo.Options{Own: true})
	s = newSystem(ctx, t, settings{uris: map[string]string{"v2": other.URI()}})
	insert(ctx, s, "v1", packageDoc("v1", "before", 1))
	c = s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	d := s.await(ctx, "the rollback", func(d upgradestate.Deployment) bool { return flipped("v2")(d) && upgradestate.ReverseSynced(d) })
	s.awaitMarked(ctx, 2)
	insert(ctx, s, "v2", packageDoc("v2", "since", 2))
	v1, _ := d.Namespace("v1")
	left, _ := v1.Kind(packagesKind)
	eventually(ctx, t, "v1 follows", func() error {
		return s.db["v1"].Collection(left.Physical).FindOne(ctx, bson.D{{Key: "_id", Value: "since"}}).Err()
	})
	return s, other, c
}

// rollsBackToFollowed goes back to v1 by the page for emergencies once no controller runs. lose has the
// database of v2 lost after the dry run. lost is what a command without --new-database-lost finds of it
// then; "": none is tried.
func (s *system) rollsBackToFollowed(ctx context.Context, lose func(), lost string) {
	t := s.t
	t.Helper()
	eventually(ctx, t, "the lease of the controller ends", func() error {
		alive, err := s.record.Controllers(ctx)
		if err == nil && len(alive) > 0 {
			err = errors.New("it is still there")
		}
		return err
	})
	without := s.breakGlass()[1]
	command := append(slices.Clone(without), "--new-database-lost")
	confirm := execute(ctx, t, s.env, append(slices.Clone(command), "--dry-run")...).confirmation(t)
	lose()
	if lost != "" {
		execute(ctx, t, s.env, without...).refuses(t, "database of v2", lost, "give --new-database-lost")
	}
	r := execute(ctx, t, s.env, said(command, confirm)...)
	if r.code != 0 || !strings.Contains(r.stderr, "the rest is lost with the database of v2") || !strings.Contains(r.stderr, "done: v1 is the current version, in epoch 3") {
		t.Fatalf("%+v", r)
	}
	if n, err := s.db["v1"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 2 {
		t.Errorf("v1 has %d documents of 2 (%v)", n, err)
	}
	insert(ctx, s, "v1", packageDoc("v1", "afterwards", 1))
}

// lostForGood is the command that messages name for a lost database of v2.
const lostForGood = "if it is lost for good, stop all controllers and run 'dbcontroller rollback --to-snapshot --offline --new-database-lost"

// TestOfflineRollbackDropped: the new version's database does not answer, and then was dropped, and
// the old version has followed until then. No message may send its reader in
// circles: --new-database-lost works, and the old version serves what had followed.
func TestOfflineRollbackDropped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s, other, c := followedAway(ctx, t)
	api, _ := c.addresses()
	other.Nodes()[0].Kill()
	execute(ctx, t, s.env, "rollback", "--server", api).refuses(t, "database of v2", "it does not answer", lostForGood)
	toSnapshot := []string{"v1 follows v2: use rollback without --to-snapshot, so that nothing is lost", "if the database of v2 is lost, see docs/break-glass.md"}
	execute(ctx, t, s.env, "rollback", "--to-snapshot", "--server", api).refuses(t, toSnapshot...)
	if err := other.Nodes()[0].Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Primary(ctx); err != nil {
		t.Fatal(err)
	}
	if err := drop(ctx, s.db["v2"]); err != nil {
		t.Fatal(err)
	}
	ways := []string{"database of v2", "it is empty or the wrong database", lostForGood}
	execute(ctx, t, s.env, "rollback", "--server", api).refuses(t, ways...)
	execute(ctx, t, s.env, "rollback", "--to-snapshot", "--server", api).refuses(t, toSnapshot...)
	if d, err := s.record.Get(ctx); err != nil || d.Upgrade != nil {
		t.Errorf("%v: an upgrade runs: %+v", err, d.Upgrade)
	}
	s.kill(c)
	// None starts again, for it could serve nothing, and it says the same.
	s.refusesToRun(ctx, nil, ways...)
	s.rollsBackToFollowed(ctx, func() {}, "it is empty or the wrong database")
	// The lost database does not keep controllers from starting. They get rid of it while they run.
	later := s.controller("later", breakPoint{}).listening(ctx)
	s.saysLost(ctx, later, "v2", "v1", "give it up with 'dbcontroller complete --version v2'")
	d, err := s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.completes(ctx, d, "v2", 0, ""); err == nil || !strings.Contains(err.Error(), "/lost, and nothing is dropped there") {
		t.Errorf("complete of a lost database: %v", err)
	}
	if err := s.completes(ctx, d, "v2", 0, "/lost"); err != nil {
		t.Fatal(err)
	}
	s.await(ctx, "the end of v2", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v2") })
	later.ready(ctx)
}

// TestOfflineRollbackFollowed: the new version's server is dead, or an empty one answers at its address,
// and the old version has followed until then.
func TestOfflineRollbackFollowed(t *testing.T) {
	t.Parallel()
	for name, empty := range map[string]bool{"dead": false, "an empty server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			s, other, c := followedAway(ctx, t)
			s.kill(c)
			node := other.Nodes()[0]
			if empty {
				s.rollsBackToFollowed(ctx, func() {
					node.Kill()
					emptied(ctx, t, other, node.DataPath()+".kept")
				}, "it is empty or the wrong database")
				return
			}
			// Each command waits long for a dead server, and TestOfflineRollbackAlone has it refused.
			s.rollsBackToFollowed(ctx, node.Kill, "")
			if err := node.Start(ctx); err != nil { // the end of the test drops its databases
				t.Fatal(err)
			}
		})
	}
}
