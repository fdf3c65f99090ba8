package integration_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/upgradestate"
)

// edited is the configuration with one text replaced, in a file of its own.
func (s *system) edited(name, old, by string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		s.t.Fatalf("%q is not in the configuration", old)
	}
	return s.write(name, strings.ReplaceAll(string(text), old, by))
}

// refusesToServe runs a server that must not start, and looks what it says.
func (s *system) refusesToServe(ctx context.Context, want ...string) {
	s.t.Helper()
	c := spawn(s.t, "refused", command(s.t, roleServer, nil, s.part(part{ID: "refused"})))
	c.ended = true // by itself
	select {
	case <-c.Done():
	case <-ctx.Done():
		s.t.Fatal("the server does not end")
	}
	for _, w := range want {
		if said := tail(c.output(), 1); !strings.Contains(said, w) {
			s.t.Errorf("the server does not say %q: %s", w, said)
		}
	}
}

// TestIdentityWrongSource: a controller with another database for the source takes no part,
// even if that looks the same. It would have stored positions behind changes that it never
// saw.
func TestIdentityWrongSource(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	for i := range 20 {
		insert(ctx, s, "v1", packageDoc("v1", fmt.Sprint(i), 0))
	}
	s.controller("right", breakPoint{}).ready(ctx)
	s.awaitSync(ctx)
	// Another database of that kind, and one in which a deployment has lived as well.
	other := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	insert(ctx, other, "v1", packageDoc("v1", "other", 0))
	wrong := []string{"run", "--config", s.edited("wrong.yaml", s.db["v1"].Name(), other.db["v1"].Name()), "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"}
	execute(ctx, t, s.env, wrong...).refuses(t, "database of v1", s.name+" was never in it", "correct its endpoint, or its database or prefix, in dbs")
	other.controller("other", breakPoint{}).ready(ctx)
	execute(ctx, t, s.env, wrong...).refuses(t, "database of v1", "it is database ", "but the deployment uses ", "correct its endpoint, or its database or prefix, in dbs")
	config := s.config
	s.config = s.dir + "/wrong.yaml"
	s.refusesToServe(ctx, "database of v1", "it is database ", "correct its endpoint")
	s.config = config

	insert(ctx, s, "v1", packageDoc("v1", "late", 0))
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 21 {
		t.Errorf("v2 has %d documents of 21 (%v)", n, err)
	}
}

// TestIdentityTwoSpellings: one database under two names of its server is one database. The
// copy would have overwritten the namespace that is served.
func TestIdentityTwoSpellings(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[{from: packages, to: bundles, lens: packages.yaml}]"})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	s.config = s.edited("twice.yaml", s.db["v2"].Name(), s.db["v1"].Name())
	// Another spelling, which the configuration cannot see through.
	uri := mongotest.Server(t).URI()
	s.refusesToRun(ctx, []string{"MONGO_V2=" + strings.Replace(uri, "127.0.0.1", "localhost", 1)},
		"database of v2", "it is the database of v1 under another name", "give the entries v1 and v2 of dbs separate databases")
}

// TestIdentityTwoDeployments: a second deployment that names a database in which another one
// has its target is refused before it touches anything there. Its comparison would have
// deleted what it did not know.
func TestIdentityTwoDeployments(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	second := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	for i := range 30 {
		insert(ctx, first, "v1", packageDoc("v1", fmt.Sprint("first-", i), 0))
	}
	insert(ctx, second, "v1", packageDoc("v1", "second", 0))
	first.controller("first", breakPoint{}).ready(ctx)
	first.awaitSync(ctx)
	second.config = second.edited("shared.yaml", second.db["v2"].Name(), first.db["v2"].Name())
	run := []string{"run", "--config", second.config, "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"}
	execute(ctx, t, second.env, run...).refuses(t, "database of v2", "is taken by v2 of "+first.name, "a database of its own")

	// One that names the application's collection of another one as its own source.
	third := newSystem(ctx, t, settings{})
	third.config = third.edited("source.yaml", third.db["v1"].Name(), first.db["v1"].Name())
	run[2] = third.config
	execute(ctx, t, third.env, run...).refuses(t, "database of v1", "is taken by v1 of "+first.name, "a database of its own")

	first.begin(ctx)
	first.await(ctx, "the flip", flipped("v2"))
	if n, err := first.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 30 {
		t.Errorf("v2 has %d documents of 30 (%v)", n, err)
	}
}

// etcdKeys is everything that etcd has of the deployment, without what goes with a lease.
func (s *system) etcdKeys(ctx context.Context) []coord.KV {
	s.t.Helper()
	kvs, _, err := s.etcd.List(ctx, s.record.Root()+"/")
	if err != nil {
		s.t.Fatal(err)
	}
	var out []coord.KV
	for _, kv := range kvs {
		if kv.Lease == 0 {
			out = append(out, kv)
		}
	}
	return out
}

// etcdBecomes replaces everything that etcd has of the deployment, as a restore does.
func (s *system) etcdBecomes(ctx context.Context, kvs []coord.KV) {
	s.t.Helper()
	now, _, err := s.etcd.List(ctx, s.record.Root()+"/")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, kv := range now {
		if _, err := s.etcd.Commit(ctx, nil, []coord.Op{{Key: kv.Key, Delete: true}}); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, kv := range kvs {
		if _, err := s.etcd.Commit(ctx, nil, []coord.Op{{Key: kv.Key, Value: kv.Value}}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// mark reads the mark in the database of a version.
func (s *system) mark(ctx context.Context, version string) (identity.Mark, error) {
	var doc struct {
		Mark identity.Mark
	}
	err := s.db[version].Collection("dbc_owner").FindOne(ctx, bson.D{{Key: "_id", Value: "namespace/" + s.name + "/" + version}}).Decode(&doc)
	return doc.Mark, err
}

// awaitMarked waits until the databases say what the record says.
func (s *system) awaitMarked(ctx context.Context, epoch uint64) {
	s.t.Helper()
	eventually(ctx, s.t, fmt.Sprintf("marks of epoch %d", epoch), func() error {
		for version := range s.db {
			mark, err := s.mark(ctx, version)
			if err != nil || mark.Epoch != epoch {
				return fmt.Errorf("%s: epoch %d, %w", version, mark.Epoch, err)
			}
		}
		return nil
	})
}

// awaitKept waits until the mark of each namespace holds the current record. A controller copies the
// record into the marks some time after it changed.
func (s *system) awaitKept(ctx context.Context) {
	s.t.Helper()
	eventually(ctx, s.t, "the record in each mark", func() error {
		d, err := s.record.Get(ctx)
		if err != nil {
			return err
		}
		for _, ns := range d.Namespaces {
			mark, err := s.mark(ctx, ns.Version)
			if err != nil {
				return fmt.Errorf("%s: %w", ns.Version, err)
			}
			kept, err := mark.Deployment()
			if err != nil {
				return fmt.Errorf("%s: %w", ns.Version, err)
			}
			if diff := cmp.Diff(d.Namespaces, kept.Namespaces); diff != "" {
				return fmt.Errorf("%s (-record +mark):\n%s", ns.Version, diff)
			}
		}
		return nil
	})
}

// recover runs the command 'recover'.
func (s *system) recover(ctx context.Context, args ...string) result {
	s.t.Helper()
	return execute(ctx, s.t, s.env, append([]string{"recover", "--config", s.config}, args...)...)
}

// recovered gives what 'recover' wants to have confirmed.
func (s *system) recovered(ctx context.Context) result {
	s.t.Helper()
	return s.recover(ctx, "--confirm", s.recover(ctx).confirmation(s.t))
}

// TestEmptyEtcd: when etcd has forgotten everything, nothing begins anew in databases that
// have lived. The service would have come up with the oldest version, empty. The controller that
// ran meanwhile ends by itself and says why.
func TestEmptyEtcd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	c := s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	s.awaitMarked(ctx, 2)
	s.etcdBecomes(ctx, nil)
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Fatal("the controller outlives its record")
	}
	c.ended = true // by itself
	s.forget(c)
	if said := tail(c.output(), 1); !strings.Contains(said, "etcd no longer has the deployment that this controller works for") || !strings.Contains(said, "dbcontroller recover") {
		t.Errorf("the controller ends with %s", said)
	}
	s.refusesToRun(ctx, nil, "database of v1", "v1 of "+s.name+" used it (last seen in epoch 2 with another current version)",
		"etcd has no such deployment", "run 'dbcontroller recover'", "never start it from the beginning")
	s.refusesToServe(ctx, " used it", "dbcontroller recover")
}

// TestRecover: a deployment that etcd has lost after a switch is rebuilt, with everything
// that was written, and can go back and forth again.
func TestRecover(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	for i := range 10 {
		insert(ctx, s, "v1", packageDoc("v1", fmt.Sprint(i), 0))
	}
	c := s.controller("controller", breakPoint{}).ready(ctx)
	s.recover(ctx).refuses(t, "agrees with its databases", "nothing to recover")
	ahead := func(epochs int) {
		t.Helper()
		res, err := s.db["v1"].Collection("dbc_owner").UpdateOne(ctx, bson.D{{Key: "_id", Value: "namespace/" + s.name + "/v1"}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "mark.epoch", Value: epochs}}}})
		if err != nil || res.ModifiedCount != 1 {
			t.Fatalf("move the mark: %+v, %v", res, err)
		}
	}
	ahead(5)
	s.recover(ctx).refuses(t, "recover: controller controller is alive", "stop all controllers")
	ahead(-5)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	insert(ctx, s, "v2", packageDoc("v2", "after", 0))
	s.awaitMarked(ctx, 2)
	if code := c.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.forget(c)
	s.recover(ctx, "--confirm", s.name).refuses(t, "agrees with its databases", "nothing to recover")
	s.etcdBecomes(ctx, nil)

	s.unchanged(ctx, t, func() {
		r := s.recover(ctx, "--dry-run")
		for _, want := range []string{
			"found: v1 in mongodb://", "last seen in epoch 2, not the current version then", "decided: v2 is the current version: by its mark in epoch 2",
			"will: write " + s.name + " with v2 as the current version, in epoch 3", "will: write that kind packages of v2 is collection ", "now packages\n", "will: leave v1 as it is",
		} {
			if r.code != 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("it does not say %q: %+v", want, r)
			}
		}
		if r := s.recover(ctx); r.code == 0 || !strings.Contains(r.stderr, "nothing is written yet: to write it, stop all servers and give --confirm "+s.name+"/replicaSet/") {
			t.Errorf("without a confirmation: %+v", r)
		}
		right := s.recover(ctx).confirmation(t)
		for _, wrong := range []string{s.name, strings.Replace(right, "replicaSet/", "replicaSet/0", 1), strings.Replace(right, s.name, "services/other/deployments/x", 1)} {
			want := `nothing is written yet, because "` + wrong + `" confirms something else: to write it, stop all servers and give --confirm ` + right
			if r := s.recover(ctx, "--confirm", wrong); r.code == 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("confirmed with another one's: %+v", r)
			}
		}
		if r := s.recover(ctx, "--current", "v1", "--confirm", s.name); r.code == 0 || !strings.Contains(r.stderr, "v1 was chosen, but v2 is the current version") {
			t.Errorf("with another choice than what the marks say: %+v", r)
		}
	})
	if r := s.recovered(ctx); r.code != 0 || !strings.Contains(r.stderr, "done: "+s.name+" is at v2 in epoch 3") {
		t.Fatalf("%+v", r)
	}
	s.recover(ctx, "--confirm", s.name).refuses(t, "agrees with its databases", "nothing to recover")

	s.controller("later", breakPoint{}).ready(ctx)
	insert(ctx, s, "v2", packageDoc("v2", "later", 0))
	s.beginTo(ctx, "v1")
	d := s.await(ctx, "the flip back", flipped("v1"))
	if d.Epoch != 4 {
		t.Errorf("epoch %d", d.Epoch)
	}
	if n, err := s.db["v1"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 12 {
		t.Errorf("v1 has %d documents of 12 (%v)", n, err)
	}
}

// TestRecoverStartsOver: the database of the version that is not served is lost, before the first
// switch and after it. Controllers serve the other one, and 'recover' rebuilds the deployment
// without the lost database, which is copied anew.
func TestRecoverStartsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}"})
	for i := range 10 {
		insert(ctx, s, "v1", packageDoc("v1", fmt.Sprint(i), 0))
	}
	c := s.controller("controller", breakPoint{}).ready(ctx)
	s.awaitSync(ctx)
	if err := drop(ctx, s.db["v2"]); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "a controller that runs says that v2 is lost", func() error {
		ps, err := s.record.Progress(ctx)
		for _, p := range ps {
			if said := p.LastError + p.WaitsFor; p.State == "ready" || !strings.Contains(said, "it is empty or the wrong database") {
				return fmt.Errorf("shard %d is %s: %q", p.Shard, p.State, said)
			}
		}
		return err
	})
	if code := c.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.forget(c)
	// The lost database is passive: a controller that starts reports it, and goes on.
	again := s.controller("again", breakPoint{}).listening(ctx)
	s.saysLost(ctx, again, "v2", "v1", "if it is lost for good, stop all processes and run 'dbcontroller recover'")
	if code := again.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.forget(again)
	s.fillHistory(ctx)
	r := s.recovered(ctx)
	r.exportsHistory(t)
	if r.code != 0 || !strings.Contains(r.stderr, "note: v2 is left out") {
		t.Fatalf("%+v", r)
	}
	later := s.controller("later", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 10 {
		t.Errorf("v2 has %d documents of 10 (%v)", n, err)
	}

	// The old version's database is lost after the switch, under a running controller and then with
	// none. The new version is served, and a rollback has to copy everything.
	d := s.await(ctx, "the old version to follow", func(d upgradestate.Deployment) bool { return flipped("v2")(d) && upgradestate.ReverseSynced(d) })
	s.awaitMarked(ctx, d.Epoch)
	if err := drop(ctx, s.db["v1"]); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the rollback is not said to be safe", func() error {
		res, err := s.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return err
		}
		if safe := res.Msg.GetRollbackSafe(); safe.GetSafe() || !strings.Contains(safe.GetReason(), "the database of v1 cannot be used now") {
			return fmt.Errorf("said is %v", safe)
		}
		return nil
	})
	insert(ctx, s, "v2", packageDoc("v2", "since", 2))
	if code := later.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.forget(later)
	last := s.controller("last", breakPoint{}).listening(ctx)
	s.saysLost(ctx, last, "v1", "v2", "'dbcontroller complete --version v1', or stop all processes and run 'dbcontroller recover'")
	if code := last.terminate(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.forget(last)
	if r := s.recovered(ctx); r.code != 0 || !strings.Contains(r.stderr, "note: v1 is left out") {
		t.Fatalf("%+v", r)
	}
	s.controller("back", breakPoint{}).ready(ctx)
	s.beginTo(ctx, "v1")
	s.await(ctx, "the flip back", flipped("v1"))
	if n, err := s.db["v1"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 11 {
		t.Errorf("v1 has %d documents of 11 (%v)", n, err)
	}
}

// saysLost waits until readiness, the API and metrics say that the database of a passive version is
// lost, and what helps, while an application that asks now gets the place of the served one.
func (s *system) saysLost(ctx context.Context, c *child, lost, served, helps string) {
	s.t.Helper()
	names := func(text string) bool {
		return strings.Contains(text, "database of "+lost) && strings.Contains(text, "it is empty or the wrong database") && strings.Contains(text, helps)
	}
	_, operator := c.addresses()
	eventually(ctx, s.t, "the controller says that "+lost+" is lost, and serves "+served, func() error {
		_, body, err := get(ctx, "http://"+operator+"/readyz")
		if err != nil || !names(body) {
			return fmt.Errorf("readyz: %s, %v", body, err)
		}
		res, err := s.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return err
		}
		if waits := strings.Join(res.Msg.GetProgress().GetWaitsFor(), "\n"); !names(waits) || !strings.Contains(waits, "controller "+c.name+": ") {
			return fmt.Errorf("get: %q", waits)
		}
		_, body, err = get(ctx, "http://"+operator+"/metrics")
		if err != nil || !regexp.MustCompile(`(?m)^dbcontroller_controller_ready{.*} 0$`).MatchString(body) {
			return fmt.Errorf("metrics: %s, %v", body, err)
		}
		at, err := s.apis()[0].GetLocation(ctx, connect.NewRequest(&dbv1.GetLocationRequest{}))
		if err != nil {
			return err
		}
		if l := at.Msg; l.GetVersion() != served || l.GetState() != dbv1.Location_OPEN || l.GetDatabase() != s.db[served].Name() {
			return fmt.Errorf("an application gets %v", l)
		}
		return nil
	})
}

// TestEtcdRestored: an etcd that was restored to an older revision is recognised, whatever it
// was in the middle of then.
func TestEtcdRestored(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	first := s.controller("first", breakPoint{}).ready(ctx)
	begun := s.etcdKeys(ctx)

	// What etcd had in each step of a switch that was aborted.
	kept := map[upgradestate.Step][]coord.KV{}
	s.begin(ctx)
	s.await(ctx, "the switch", func(d upgradestate.Deployment) bool {
		if u := d.Upgrade; u != nil {
			kept[u.Step] = s.etcdKeys(ctx)
		}
		return d.Upgrade == nil && d.Epoch == 2
	})
	s.awaitMarked(ctx, 2)
	s.kill(first)
	s.etcdBecomes(ctx, begun)
	s.refusesToRun(ctx, nil, "database of v", "the deployment is older than it", "epoch 2", "run 'dbcontroller recover'")
	s.refusesToServe(ctx, "the deployment is older than it")
	for step, kvs := range kept {
		s.etcdBecomes(ctx, kvs)
		s.refusesToRun(ctx, nil, "database of v", "the deployment is older than it", "run 'dbcontroller recover'")
		t.Logf("restored to step %q: refused", step)
	}
	if len(kept) < 2 {
		t.Errorf("only steps %v were seen", kept)
	}
	if r := s.recovered(ctx); r.code != 0 || !strings.Contains(r.stderr, "done: "+s.name+" is at v2 in epoch 3") {
		t.Fatalf("%+v", r)
	}
	s.controller("later", breakPoint{}).ready(ctx)
	s.await(ctx, "v2 to be open again", flipped("v2")) // what the recovery has announced may still go on
}
