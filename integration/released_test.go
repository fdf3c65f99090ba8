package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// writeReleased writes a new archive for TestReleased:
//
//	go test ./integration -run TestReleased -released v0.2.0
//
// Each release adds its archive. Nobody writes the archive of a published release again.
var writeReleased = flag.String("released", "", "write the state that this build leaves, for later builds, under this name of a release")

// releasedDir has an archive for each release. It has the folders of a mongod and an etcd that ended
// well, and released.json.
const releasedDir = "testdata/released"

// left is the state of a deployment when its release's controller ended.
type left struct {
	Upgrade string           // the upgrade that had begun; empty after a switch
	Told    map[string]int64 // n by key, of each document that MongoDB acknowledged
}

// releasedState is the content of released.json.
type releasedState struct {
	MongoDB     string          // version of the mongod whose files are in the archive
	Deployments map[string]left // by run
}

// released is a MongoDB and an etcd with two deployments that a release has left: one waits for the
// order to switch, and the other one has switched and syncs back.
type released struct {
	t           *testing.T
	mongo       *localmongo.Server
	etcd        *localetcd.Server
	etcdDir     string
	state       releasedState
	began, back *restorable
}

const (
	releasedBegan = "released-began"
	releasedBack  = "released-back"
)

// TestReleased starts the controller of this build over what each release has left. It goes on with
// the upgrade that the release began, without a new copy, and switches back what the release
// switched.
func TestReleased(t *testing.T) {
	t.Parallel()
	if *writeReleased != "" {
		leave(t, filepath.Join(releasedDir, *writeReleased+".tar.gz"))
	}
	archives, err := filepath.Glob(filepath.Join(releasedDir, "*.tar.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives in %s: %v", releasedDir, err)
	}
	for _, a := range archives {
		t.Run(filepath.Base(a), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r := newReleased(ctx, t, a)
			r.goesOn(ctx)
			r.goesBack(ctx)
		})
	}
}

// goesOn ends the upgrade that the release began, and takes it back.
func (r *released) goesOn(ctx context.Context) {
	r.t.Helper()
	s, upgrade := r.began, r.state.Deployments[releasedBegan].Upgrade
	done := r.copied(ctx, s)
	c := s.controller("this-build", breakPoint{}).ready(ctx)
	s.ready(ctx)
	s.change(ctx, "v1", 2)
	s.follows(ctx, "v2")
	if d, err := s.record.Get(ctx); err != nil || d.Upgrade == nil || d.Upgrade.ID != upgrade {
		r.t.Errorf("upgrade %+v, want %s, which the release began; %v", d.Upgrade, upgrade, err)
	}
	if now := r.copied(ctx, s); now != done {
		r.t.Errorf("the copy is %s, the release left %s", now, done)
	}
	s.switches(ctx, "v2")
	s.change(ctx, "v2", 3)
	s.beginTo(ctx, "v1")
	s.ready(ctx)
	s.switches(ctx, "v1")
	if code := c.terminate(patience); code != 0 {
		r.t.Errorf("exit code %d", code)
	}
}

// goesBack takes back the switch of the release.
func (r *released) goesBack(ctx context.Context) {
	r.t.Helper()
	s := r.back
	done := r.copied(ctx, s)
	c := s.controller("this-build", breakPoint{}).ready(ctx)
	s.change(ctx, "v2", 2)
	s.follows(ctx, "v1")
	if now := r.copied(ctx, s); now != done {
		r.t.Errorf("the copy is %s, the release left %s", now, done)
	}
	s.beginTo(ctx, "v1")
	s.ready(ctx)
	s.switches(ctx, "v1")
	if code := c.terminate(patience); code != 0 {
		r.t.Errorf("exit code %d", code)
	}
}

// copied returns what is stored of a deployment's copies: their plans and how many records are copied.
// Another copy would make another plan, or count further.
func (r *released) copied(ctx context.Context, s *restorable) string {
	r.t.Helper()
	kvs, _, err := s.etcd.List(ctx, s.record.Root()+"/")
	if err != nil {
		r.t.Fatal(err)
	}
	var plans []string
	var count int64
	for _, kv := range kvs {
		key := strings.TrimPrefix(kv.Key, s.record.Root()+"/")
		switch {
		case strings.HasPrefix(key, "plans/"):
			plans = append(plans, fmt.Sprintf("%s at revision %d", key, kv.Create))
		case strings.HasPrefix(key, "checkpoints/"):
			var c syncer.Checkpoint
			if err := json.Unmarshal(kv.Value, &c); err != nil {
				r.t.Fatal(err)
			}
			count += c.Count
		}
	}
	if len(plans) == 0 || count == 0 {
		r.t.Fatalf("plans %v, %d records are copied", plans, count)
	}
	return fmt.Sprintf("%d records, plans %v", count, plans)
}

// newReleased gives a MongoDB and an etcd the data of an archive; "" leaves them empty.
func newReleased(ctx context.Context, t *testing.T, from string) *released {
	t.Helper()
	r := &released{t: t, etcdDir: t.TempDir(), state: releasedState{Deployments: map[string]left{}}}
	r.mongo = start(ctx, t, localmongo.Options{Own: true, OplogMB: 16})
	if from != "" {
		r.unpack(ctx, from)
	}
	var err error
	if r.etcd, err = localetcd.Open(r.etcdDir, localetcd.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.etcd != nil {
			if err := r.etcd.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	r.began, r.back = r.deployment(ctx, releasedBegan), r.deployment(ctx, releasedBack)
	return r
}

func (r *released) deployment(ctx context.Context, run string) *restorable {
	r.t.Helper()
	told := r.state.Deployments[run].Told
	if told == nil {
		told = map[string]int64{}
	}
	uri := r.mongo.URI()
	return &restorable{
		t: r.t, told: told, servers: map[string]*localmongo.Server{"v1": r.mongo, "v2": r.mongo},
		system: newSystem(ctx, r.t, settings{
			run: run, uris: map[string]string{"v1": uri, "v2": uri}, etcd: []string{r.etcd.Endpoint},
			toSwitch: "{deadline: 5m, maxLag: 3s, automatic: false}",
		}),
	}
}

// unpack gives the member of a new replica set the archive's data. Its port is another one now.
func (r *released) unpack(ctx context.Context, from string) {
	r.t.Helper()
	dir := r.t.TempDir()
	if err := unpackTo(from, dir); err != nil {
		r.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "released.json"))
	if err == nil {
		err = json.Unmarshal(text, &r.state)
	}
	if err == nil {
		err = os.CopyFS(r.etcdDir, os.DirFS(filepath.Join(dir, "etcd")))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	// A newer MongoDB must read them: this repository may not update its own without noticing.
	if is := r.mongo.Version(); older(r.t, is, r.state.MongoDB) {
		r.t.Skipf("MongoDB is %s here, and %s has files of %s: make mongodb", is, from, r.state.MongoDB)
	}
	node := r.mongo.Nodes()[0]
	node.Kill()
	if err = os.RemoveAll(node.DataPath()); err == nil {
		err = os.CopyFS(node.DataPath(), os.DirFS(filepath.Join(dir, "mongod")))
	}
	if err == nil {
		err = node.Start(ctx)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	admin := r.direct(ctx)
	eventually(ctx, r.t, "the set has its member at the new port", func() error {
		var is struct {
			Config bson.M `bson:"config"`
		}
		if err := admin.RunCommand(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}}).Decode(&is); err != nil {
			return err
		}
		members, ok := is.Config["members"].(bson.A)
		if !ok || len(members) != 1 {
			return fmt.Errorf("members %v", is.Config["members"])
		}
		member, ok := members[0].(bson.D)
		if !ok {
			return fmt.Errorf("member %T", members[0])
		}
		for i := range member {
			if member[i].Key == "host" {
				member[i].Value = node.Addr()
			}
		}
		return admin.RunCommand(ctx, bson.D{{Key: "replSetReconfig", Value: is.Config}, {Key: "force", Value: true}}).Err()
	})
}

// older reports whether a MongoDB is of an older series than another one. Series are as in 8.2.
func older(t *testing.T, version, than string) bool {
	t.Helper()
	var a, b [2]int
	for text, into := range map[string]*[2]int{version: &a, than: &b} {
		if _, err := fmt.Sscanf(text, "%d.%d", &into[0], &into[1]); err != nil {
			t.Fatalf("version %q of MongoDB: %v", text, err)
		}
	}
	return slices.Compare(a[:], b[:]) < 0
}

// direct is the admin database of the node, which may be no primary.
func (r *released) direct(ctx context.Context) *mongo.Database {
	r.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + r.mongo.Nodes()[0].Addr() + "/?directConnection=true"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(ctx)) })
	return client.Database("admin")
}

// leave runs both deployments with this build and writes an archive of what they left.
func leave(t *testing.T, to string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newReleased(ctx, t, "")
	for _, s := range []*restorable{r.began, r.back} {
		docs := make([]any, 200)
		for i := range docs {
			docs[i] = packageDoc("v1", packageKey(i), 0)
			s.told[packageKey(i)] = 0
		}
		if _, err := s.db["v1"].Collection(packagesKind).InsertMany(ctx, docs); err != nil {
			t.Fatal(err)
		}
	}
	for run, s := range map[string]*restorable{releasedBegan: r.began, releasedBack: r.back} {
		c := s.controller("released", breakPoint{}).ready(ctx)
		s.begin(ctx)
		s.ready(ctx)
		was := left{Told: s.told}
		if s == r.began {
			s.change(ctx, "v1", 1)
			s.follows(ctx, "v2")
			was.Upgrade = s.await(ctx, "the upgrade", func(d upgradestate.Deployment) bool { return d.Upgrade != nil }).Upgrade.ID
		} else {
			s.switches(ctx, "v2")
			s.change(ctx, "v2", 1)
			s.follows(ctx, "v1")
		}
		r.state.Deployments[run] = was
		if code := c.terminate(patience); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
	r.pack(ctx, to)
}

func (r *released) pack(ctx context.Context, to string) {
	r.t.Helper()
	err := r.etcd.Close()
	r.etcd = nil
	if err != nil {
		r.t.Fatal(err)
	}
	node := r.mongo.Nodes()[0]
	_ = r.direct(ctx).RunCommand(ctx, bson.D{{Key: "shutdown", Value: 1}, {Key: "force", Value: true}}).Err() // the connection breaks
	eventually(ctx, r.t, "mongod ends", func() error {
		if node.Pid() != 0 {
			return errors.New("it runs")
		}
		return nil
	})
	r.state.MongoDB = r.mongo.Version()
	text, err := json.MarshalIndent(r.state, "", " ")
	if err != nil {
		r.t.Fatal(err)
	}
	err = packTo(to, map[string]string{"etcd": r.etcdDir, "mongod": node.DataPath()}, map[string][]byte{"released.json": text})
	// The end of the test drops the databases.
	if err = errors.Join(err, node.Start(ctx)); err != nil {
		r.t.Fatal(err)
	}
}
