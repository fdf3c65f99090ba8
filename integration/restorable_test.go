package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/upgradestate"
)

// restorable is a system with a server for each version, which a test restores from backups.
type restorable struct {
	*system
	t       *testing.T
	servers map[string]*localmongo.Server
	told    map[string]int64 // n by key, of each document that the servers acknowledged
}

const restorableDocs = 400

func newRestorable(ctx context.Context, t *testing.T, copies string) *restorable {
	r := &restorable{t: t, servers: map[string]*localmongo.Server{}, told: map[string]int64{}}
	uris := map[string]string{}
	for _, v := range []string{"v1", "v2"} {
		r.servers[v] = start(ctx, t, localmongo.Options{Own: true})
		uris[v] = r.servers[v].URI()
	}
	r.system = newSystem(ctx, t, settings{uris: uris, copy: copies, toSwitch: "{deadline: 5m, maxLag: 3s, automatic: false}"})
	docs := make([]any, restorableDocs)
	for i := range docs {
		docs[i] = packageDoc("v1", packageKey(i), 0)
		r.told[packageKey(i)] = 0
	}
	if _, err := r.db["v1"].Collection(packagesKind).InsertMany(ctx, docs); err != nil {
		t.Fatal(err)
	}
	return r
}

// backup copies the data of a version's server, which does not run meanwhile. It returns when the
// database has a beat that the backup lacks: the controllers must run.
func (r *restorable) backup(ctx context.Context, version string) string {
	r.t.Helper()
	node := r.servers[version].Nodes()[0]
	node.Kill()
	to := filepath.Join(r.t.TempDir(), "data")
	if err := os.CopyFS(to, os.DirFS(node.DataPath())); err != nil {
		r.t.Fatal(err)
	}
	r.run(ctx, version)
	r.livesOn(ctx, version)
	return to
}

// livesOn waits for a beat that a backup made before the call lacks. Controllers detect a restored
// database only by a beat that it lacks (docs/operations.md), and a test may restore a backup
// within a second. The database counts before etcd, so the backup may have one beat more than etcd.
func (r *restorable) livesOn(ctx context.Context, version string) {
	r.t.Helper()
	then := r.beat(ctx, version)
	eventually(ctx, r.t, version+" counts after the backup", func() error {
		if now := r.beat(ctx, version); now < then+2 {
			return fmt.Errorf("beat %d, and %d at the backup", now, then)
		}
		return nil
	})
}

// restore gives a version's server the data of a backup.
func (r *restorable) restore(ctx context.Context, version, from string) {
	r.t.Helper()
	r.servers[version].Nodes()[0].Kill()
	r.putBack(version, from)
	r.run(ctx, version)
}

// putBack gives a version's server, which does not run, the data of a backup.
func (r *restorable) putBack(version, from string) {
	r.t.Helper()
	node := r.servers[version].Nodes()[0]
	if err := os.RemoveAll(node.DataPath()); err != nil {
		r.t.Fatal(err)
	}
	if err := os.CopyFS(node.DataPath(), os.DirFS(from)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *restorable) run(ctx context.Context, version string) {
	r.t.Helper()
	if err := r.servers[version].Nodes()[0].Start(ctx); err != nil {
		r.t.Fatal(err)
	}
	eventually(ctx, r.t, version+" can be written", func() error {
		_, err := r.db[version].Collection("other").InsertOne(ctx, bson.D{})
		return err
	})
}

// change has the application change, delete and insert documents of a version, with all of it
// acknowledged.
func (r *restorable) change(ctx context.Context, version string, n int64) {
	r.t.Helper()
	c := r.db[version].Collection(packagesKind)
	for i := range 40 {
		gone, made := packageKey(int(n)*40+i), fmt.Sprintf("made-%d-%d", n, i)
		if _, err := c.DeleteOne(ctx, bson.D{{Key: "_id", Value: gone}}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := c.InsertOne(ctx, packageDoc(version, made, n)); err != nil {
			r.t.Fatal(err)
		}
		delete(r.told, gone)
		r.told[made] = n
	}
	if _, err := c.UpdateMany(ctx, bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}}); err != nil {
		r.t.Fatal(err)
	}
	for k := range r.told {
		r.told[k] = n
	}
}

// differs compares a collection with the acknowledged documents.
func (r *restorable) differs(ctx context.Context, c *mongo.Collection, told map[string]int64) error {
	cur, err := c.Find(ctx, bson.D{})
	if err != nil {
		return err
	}
	var docs []struct {
		ID string `bson:"_id"`
		N  int64  `bson:"n"`
	}
	if err := cur.All(ctx, &docs); err != nil {
		return err
	}
	has, lost, wrong, back := map[string]int64{}, 0, 0, 0
	for _, d := range docs {
		has[d.ID] = d.N
		if _, ok := told[d.ID]; !ok {
			back++
		}
	}
	for k, n := range told {
		if at, ok := has[k]; !ok {
			lost++
		} else if at != n {
			wrong++
		}
	}
	if lost+wrong+back > 0 {
		return fmt.Errorf("of %d documents %d are lost, %d wrong, and %d that were deleted are back", len(told), lost, wrong, back)
	}
	return nil
}

// follows waits until the following version has the acknowledged documents.
func (r *restorable) follows(ctx context.Context, version string) {
	r.t.Helper()
	eventually(ctx, r.t, version+" follows", func() error {
		d, err := r.record.Get(ctx)
		if err != nil {
			return err
		}
		ns, _ := d.Namespace(version)
		k, _ := ns.Kind(packagesKind)
		return r.differs(ctx, r.db[version].Collection(k.Physical), r.told)
	})
}

// ready waits until an upgrade holds at ready.
func (r *restorable) ready(ctx context.Context) {
	r.t.Helper()
	r.await(ctx, "all shards are ready", func(d upgradestate.Deployment) bool { return upgradestate.AllReady(d) })
}

// generation is of the images of a version.
func (r *restorable) generation(ctx context.Context, version string) uint64 {
	r.t.Helper()
	d, err := r.record.Get(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	ns, _ := d.Namespace(version)
	return ns.Images.Generation
}

// beat is the latest of a version's database.
func (r *restorable) beat(ctx context.Context, version string) uint64 {
	r.t.Helper()
	b, _, err := r.record.LoadBeat(ctx, version)
	if err != nil {
		r.t.Fatal(err)
	}
	return b.Count
}

// rebuilds waits until a version is made anew.
func (r *restorable) rebuilds(ctx context.Context, version string, after uint64) {
	r.t.Helper()
	r.await(ctx, version+" is made anew", func(d upgradestate.Deployment) bool {
		ns, _ := d.Namespace(version)
		return ns.Images.Generation > after
	})
}

// switches asks for the switch, and then compares the served documents with the acknowledged ones.
func (r *restorable) switches(ctx context.Context, to string) {
	r.t.Helper()
	r.askSwitch(ctx)
	r.served(ctx, to)
}

func (r *restorable) askSwitch(ctx context.Context) {
	r.t.Helper()
	eventually(ctx, r.t, "the switch is asked for", func() error {
		err := errors.New("no controller listens")
		for _, api := range r.apis() {
			if _, err = api.Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{})); err == nil {
				return nil
			}
		}
		return err
	})
}

// served waits for a switch, and then compares the served documents with the acknowledged ones.
func (r *restorable) served(ctx context.Context, to string) {
	r.t.Helper()
	r.await(ctx, "the switch to "+to, flipped(to))
	if err := r.differs(ctx, r.db[to].Collection(packagesKind), r.told); err != nil {
		r.t.Errorf("served is %s: %v", to, err)
	}
}

// gaveUp checks that a restore has ended an attempt at the latest switch.
func (r *restorable) gaveUp(ctx context.Context) {
	r.t.Helper()
	d, err := r.record.Get(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	attempts := []string{}
	for _, e := range d.History {
		if e.What == "retry" && e.ID == d.LastSwitch.ID {
			attempts = append(attempts, e.Detail)
		}
	}
	if !slices.ContainsFunc(attempts, func(why string) bool { return strings.HasSuffix(why, "was restored from a backup") }) {
		r.t.Errorf("no attempt has ended for the restore: %q", attempts)
	}
}

// pace lets the copy go as fast as it can.
func (r *restorable) pace(ctx context.Context) {
	r.t.Helper()
	eventually(ctx, r.t, "the pace is set", func() error {
		none := int32(0)
		_, err := r.apis()[0].SetPace(ctx, connect.NewRequest(&dbv1.SetPaceRequest{MaxRate: &none}))
		return err
	})
}
