package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// restorable is a system, each version of which is on a server of its own that is restored from
// backups, and what its application was told.
type restorable struct {
	*system
	t       *testing.T
	servers map[string]*localmongo.Server
	told    map[string]int64 // n by key, of all documents that are there
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

// differs compares a collection with what the application was told.
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

// follows waits until the version that follows has what the application was told.
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

// switches asks for the switch, and compares what is served after it with what the application was
// told.
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

// served waits for a switch, and compares what is served after it with what the application was
// told.
func (r *restorable) served(ctx context.Context, to string) {
	r.t.Helper()
	r.await(ctx, "the switch to "+to, flipped(to))
	if err := r.differs(ctx, r.db[to].Collection(packagesKind), r.told); err != nil {
		r.t.Errorf("served is %s: %v", to, err)
	}
}

// TestRestoredPassive restores the database of the version that is not served, in every phase:
// nothing that was acknowledged is lost, and the upgrade goes on by itself.
func TestRestoredPassive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRestorable(ctx, t, "{auto: false, workers: 2, maxRate: 100}")
	c := r.controller("one", breakPoint{}).ready(ctx)

	// In the copy.
	early := r.backup(ctx, "v2")
	r.begin(ctx)
	eventually(ctx, t, "a part is copied", func() error {
		n, err := r.db["v2"].Collection("packages.n1").CountDocuments(ctx, bson.D{})
		if err == nil && n < restorableDocs/4 {
			err = fmt.Errorf("%d documents", n)
		}
		return err
	})
	r.restore(ctx, "v2", early)
	r.rebuilds(ctx, "v2", 0)
	r.change(ctx, "v1", 1)
	r.pace(ctx)
	r.ready(ctx)

	// Held at ready, which is the smallest form.
	was := r.generation(ctx, "v2")
	at := r.backup(ctx, "v2")
	r.change(ctx, "v1", 2)
	r.follows(ctx, "v2")
	r.restore(ctx, "v2", at)
	r.rebuilds(ctx, "v2", was)
	r.ready(ctx)
	r.follows(ctx, "v2")

	// Between two runs of controllers, and with a change that none of them has seen yet.
	was = r.generation(ctx, "v2")
	at = r.backup(ctx, "v2")
	r.change(ctx, "v1", 3)
	r.follows(ctx, "v2")
	r.kill(c)
	r.restore(ctx, "v2", at)
	c = r.stepping("two").ready(ctx)
	r.rebuilds(ctx, "v2", was)
	r.ready(ctx)

	// In the switch. Its application waits there, so that the last change comes before it.
	at = r.backup(ctx, "v2")
	r.change(ctx, "v1", 7)
	r.follows(ctx, "v2")
	r.askSwitch(ctx)
	r.walk(ctx, c, "v2", []upgradestate.Step{upgradestate.StepFence, upgradestate.StepSealTarget}, func(upgradestate.Step) { r.restore(ctx, "v2", at) })
	r.served(ctx, "v2")
	r.gaveUp(ctx)

	// After the switch: the old version is as it was before it, open to its application.
	r.change(ctx, "v2", 4)
	r.follows(ctx, "v1")
	old := r.backup(ctx, "v1")
	was = r.generation(ctx, "v1")
	r.change(ctx, "v2", 5)
	r.follows(ctx, "v1")
	r.restore(ctx, "v1", old)
	r.rebuilds(ctx, "v1", was)
	r.follows(ctx, "v1")

	// Before the rollback, with no controller meanwhile.
	was = r.generation(ctx, "v1")
	r.change(ctx, "v2", 6)
	r.follows(ctx, "v1")
	r.kill(c)
	r.restore(ctx, "v1", old)
	c = r.stepping("three").ready(ctx)
	r.rebuilds(ctx, "v1", was)
	r.beginTo(ctx, "v1")
	r.ready(ctx)

	// In the switch back.
	at = r.backup(ctx, "v1")
	r.change(ctx, "v2", 8)
	r.follows(ctx, "v1")
	r.askSwitch(ctx)
	r.walk(ctx, c, "v1", []upgradestate.Step{upgradestate.StepDrain}, func(upgradestate.Step) { r.restore(ctx, "v1", at) })
	r.served(ctx, "v1")
	r.gaveUp(ctx)
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

// TestRestoredFromBeforeTheSwitch restores backups at which nothing of the present is right. The
// target's is from before the latest changes, and the switch is asked for at once. The old
// version's is from before the switch, in which its collection has its open name and no fence. The
// served version's is from before the switch back, in which its collection has a hidden name.
func TestRestoredFromBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRestorable(ctx, t, "{auto: false, workers: 2}")
	c := r.stepping("one").ready(ctx)
	r.begin(ctx)
	r.ready(ctx)
	night := r.backup(ctx, "v1")
	at := r.backup(ctx, "v2")
	r.change(ctx, "v1", 1)
	r.follows(ctx, "v2")
	r.restore(ctx, "v2", at)
	// And once more right before the flip.
	r.askSwitch(ctx)
	r.walk(ctx, c, "v2", []upgradestate.Step{upgradestate.StepSealSource}, func(upgradestate.Step) { r.restore(ctx, "v2", at) })
	r.served(ctx, "v2")
	r.gaveUp(ctx)
	c.order(orderRun)

	r.change(ctx, "v2", 2)
	r.follows(ctx, "v1")
	was := r.generation(ctx, "v1")
	r.restore(ctx, "v1", night)
	r.change(ctx, "v2", 3)
	r.rebuilds(ctx, "v1", was)
	r.follows(ctx, "v1")
	hidden := r.backup(ctx, "v1") // its collection has a hidden name
	r.beginTo(ctx, "v1")
	r.switches(ctx, "v1")

	// The served version's, from before the switch back: the command that the deployment names
	// serves what v2 has.
	r.change(ctx, "v1", 4)
	r.follows(ctx, "v2")
	r.restore(ctx, "v1", hidden)
	eventually(ctx, t, "the command is named", func() error {
		if shown := r.cli(ctx, "get", "deployment").stdout; !strings.Contains(shown, "'recover --current' with another version") {
			return errors.New(shown)
		}
		return nil
	})
	if code := c.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.forget(c)
	confirm := r.recover(ctx, "--current", "v2").confirmation(t)
	if res := r.recover(ctx, "--current", "v2", "--confirm", confirm); res.code != 0 || !strings.Contains(res.stderr, "done: "+r.name+" is at v2") {
		t.Fatalf("%+v", res)
	}
	r.controller("later", breakPoint{}).listening(ctx)
	r.served(ctx, "v2")

	// And the way on is open: v1 is made anew from it.
	r.change(ctx, "v2", 5)
	r.beginTo(ctx, "v1")
	r.ready(ctx)
	r.switches(ctx, "v1")
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

// decides has an operator decide about the restored database of a version: first without a
// confirmation, which says what the choice gives up and changes nothing.
func (r *restorable) decides(ctx context.Context, version, choice string, gives ...string) {
	r.t.Helper()
	r.await(ctx, "the restore of "+version+" is seen", func(d upgradestate.Deployment) bool {
		found, ok := upgradestate.WasRestored(d)
		return ok && found.Version == version
	})
	call := func(args ...string) result {
		api, _ := r.controllers[len(r.controllers)-1].addresses()
		return execute(ctx, r.t, r.env, append(args, "--server", api)...)
	}
	var shown result
	eventually(ctx, r.t, "the decision is asked for", func() error {
		if shown = call("restored", choice); !strings.Contains(shown.stderr, "--confirm ") {
			return errors.New(shown.stderr)
		}
		return nil
	})
	for _, want := range append(gives, "nothing is changed yet") {
		if shown.code == 0 || !strings.Contains(shown.stderr, want) {
			r.t.Errorf("it does not say %q: %d %s", want, shown.code, shown.stderr)
		}
	}
	if got := call("get", "deployment"); !strings.Contains(got.stdout, "RESTORED") || !strings.Contains(got.stdout, "'restored --follow'") || !strings.Contains(got.stdout, "'restored --keep'") || strings.Contains(got.stdout, "rollback safe") {
		r.t.Errorf("get shows %s", got.stdout)
	}
	if got := call("restored", choice, "--confirm", shown.confirmation(r.t)); got.code != 0 {
		r.t.Fatalf("%s: %s", choice, got.stderr)
	}
	r.await(ctx, "nothing is left to be decided", func(d upgradestate.Deployment) bool { return upgradestate.RestoredLine(d) == "" })
}

// TestRestoredServed restores the database of the version that is served, in every phase: nothing
// goes on before a person has decided, and what was decided is what there is.
func TestRestoredServed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := newRestorable(ctx, t, "{auto: false, workers: 2}")
	c := r.controller("one", breakPoint{}).ready(ctx)
	gives := fmt.Sprintf("of %d compared groups, 40 are only in ", restorableDocs+40)

	// Held at ready, and asked to switch: the restored state counts.
	r.begin(ctx)
	r.ready(ctx)
	at, before := r.backup(ctx, "v1"), maps.Clone(r.told)
	r.change(ctx, "v1", 1)
	r.follows(ctx, "v2")
	r.restore(ctx, "v1", at)
	r.decides(ctx, "v1", "--follow", gives, "--follow drops the last two, as they are in v2")
	r.told = before
	r.ready(ctx)
	r.switches(ctx, "v2")

	// After the switch: what the old version has is served again.
	r.follows(ctx, "v1")
	at = r.backup(ctx, "v2")
	r.change(ctx, "v2", 2)
	r.follows(ctx, "v1")
	r.restore(ctx, "v2", at)
	r.decides(ctx, "v2", "--keep", gives, "--keep drops the first two, as they are in v2")
	r.await(ctx, "v1 is served again", flipped("v1"))
	if err := r.differs(ctx, r.db["v1"].Collection(packagesKind), r.told); err != nil {
		t.Errorf("kept is v1: %v", err)
	}

	// Between two runs of controllers: what the new version has is served.
	r.begin(ctx)
	r.ready(ctx)
	at = r.backup(ctx, "v1")
	r.change(ctx, "v1", 3)
	r.follows(ctx, "v2")
	r.kill(c)
	r.restore(ctx, "v1", at)
	c = r.controller("two", breakPoint{}).ready(ctx)
	r.decides(ctx, "v1", "--keep", gives)
	r.await(ctx, "v2 is served", flipped("v2"))
	if err := r.differs(ctx, r.db["v2"].Collection(packagesKind), r.told); err != nil {
		t.Errorf("kept is v2: %v", err)
	}

	// And the way on is open: v1 is made anew from it.
	r.change(ctx, "v2", 4)
	r.beginTo(ctx, "v1")
	r.ready(ctx)

	// Before this rollback: the restored state counts, and is what the old version gets.
	at, before = r.backup(ctx, "v2"), maps.Clone(r.told)
	r.change(ctx, "v2", 5)
	r.follows(ctx, "v1")
	r.restore(ctx, "v2", at)
	r.decides(ctx, "v2", "--follow", gives, "--follow drops the last two, as they are in v1")
	r.told = before
	r.ready(ctx)
	r.switches(ctx, "v1")

	// In the switch, before the fence: the attempt ends, and the restored state counts.
	r.kill(c)
	c = r.stepping("three").ready(ctx)
	r.begin(ctx)
	r.ready(ctx)
	at, before = r.backup(ctx, "v1"), maps.Clone(r.told)
	r.change(ctx, "v1", 6)
	r.follows(ctx, "v2")
	r.askSwitch(ctx)
	for c.awaitReached(ctx) != string(upgradestate.StepHold) {
		c.order(orderStep)
	}
	r.restore(ctx, "v1", at)
	c.order(orderRun)
	r.decides(ctx, "v1", "--follow", gives, "--follow drops the last two, as they are in v2")
	r.told = before
	r.served(ctx, "v2")
	r.gaveUp(ctx)
}
