package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/engine/identity"
)

// TestCrossEngine moves a service from etcd to MongoDB and from MongoDB to etcd, back and forth
// again, under traffic. On the way controllers, a server and the etcd with the records are killed.
// That etcd is also restored from a backup while it is not served: as the target before the switch,
// as the old version after it. It is compacted while nobody follows it, in the copy and after it, so
// that the history of a source that is in etcd is lost. Nothing is lost, duplicated or resurrected,
// and in the end both engines hold the same.
func TestCrossEngine(t *testing.T) {
	for _, in := range []string{"v1", "v2"} {
		t.Run(in+" in etcd", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			records := startSomeMembers(ctx, t, 1, nil)
			s := newSystem(ctx, t, settings{
				kinds: "[]", records: map[string]string{in: inEtcd(records.endpoints()[0], "")}, copy: "{auto: false, workers: 1}",
			})
			x := &crossing{
				system: s, records: records,
				traffic: &traffic{system: s, processes: newLedger("process"), packages: newLedger("package"), alone: true},
			}
			x.run(ctx, in)
		})
	}
}

type crossing struct {
	*system
	records    *members // one, of the etcd that records are in
	traffic    *traffic
	controller *child
	started    int
}

func (x *crossing) run(ctx context.Context, in string) {
	t := x.t
	t.Helper()
	const filled = 400
	x.start(ctx)
	a, b := x.server("a", 0).ready(ctx), x.server("b", 0).ready(ctx)
	x.fillProcesses(ctx, a, filled)
	x.traffic.start(ctx, a, b)
	x.traffic.awaitWrites(ctx, "v1", filled+50)

	// A worker's first page has at most 100 records, and the next one is minutes away.
	x.pace(ctx, 1)
	x.beginHolding(ctx, "v2")
	x.inTheCopy(ctx, filled)
	x.disturb(ctx, "v1", in == "v1")
	x.pace(ctx, 0)
	x.awaitSync(ctx)
	x.lostHistory(in == "v1")

	x.disturb(ctx, "v1", in == "v1")
	x.awaitSync(ctx)
	x.lostHistory(in == "v1")
	x.traffic.processes.excuse(true) // calls of what is killed may fail
	if in == "v2" {
		x.restores(ctx, "v1", in)
	} else {
		x.records.again(ctx, func(string) {})
	}
	b.kill()
	x.serve(a, x.server("c", 0).ready(ctx))
	x.traffic.processes.excuse(false)
	x.awaitSync(ctx)
	x.goOn(ctx)
	x.await(ctx, "the flip to v2", flipped("v2"))
	x.traffic.awaitWrites(ctx, "v2", 20)
	if in == "v1" {
		x.restores(ctx, "v2", in)
	}

	x.disturb(ctx, "v2", in == "v2")
	x.awaitSync(ctx)
	x.lostHistory(in == "v2")
	for i, to := range []string{"v1", "v2"} {
		x.beginTo(ctx, to)
		d := x.await(ctx, "the flip to "+to, flipped(to))
		x.traffic.awaitWrites(ctx, to, x.traffic.processes.count(to)+20)
		t.Logf("flip %d, to %s, phases %v", i+2, to, d.LastSwitch.Millis)
	}
	d, err := x.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	x.traffic.settle(ctx, d)
	x.same(ctx)
}

// start starts a controller.
func (x *crossing) start(ctx context.Context) {
	x.t.Helper()
	x.started++
	x.controller = x.system.controller(fmt.Sprint("controller-", x.started), breakPoint{}).ready(ctx)
}

// fillProcesses makes processes that nobody writes any more.
func (x *crossing) fillProcesses(ctx context.Context, server *child, n int) {
	x.t.Helper()
	const writers = 8
	client := newBBSClient(x.http, server)
	var wg sync.WaitGroup
	for i := range writers {
		w := &bbsWriter{client: client, ledger: x.traffic.processes, rng: rand.New(rand.NewPCG(3, uint64(i))), number: bbsClients + i}
		wg.Go(func() {
			for range n / writers {
				w.op++
				w.create(ctx)
			}
		})
	}
	wg.Wait()
}

// disturb kills the controller, has clients write, forgets the history of etcd, and starts
// another one.
func (x *crossing) disturb(ctx context.Context, version string, compacts bool) {
	x.t.Helper()
	x.kill(x.controller)
	x.traffic.awaitWrites(ctx, version, x.traffic.processes.count(version)+20)
	if compacts {
		etcd := x.records.clients[0]
		now, err := etcd.Get(ctx, "any")
		if err == nil {
			_, err = etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
		}
		if err != nil {
			x.t.Fatal(err)
		}
	}
	x.start(ctx)
}

// lostHistory checks whether the controller has noticed that the history was lost, where it was.
func (x *crossing) lostHistory(was bool) {
	x.t.Helper()
	if noticed := strings.Contains(x.controller.output(), "the change history of the source is lost"); noticed != was {
		x.t.Errorf("%s noticed that the history was lost: %t, want %t", x.controller.name, noticed, was)
	}
}

// restores gives the etcd with the records of a version that is not served the data of a backup,
// under traffic, and waits until the version is made anew.
func (x *crossing) restores(ctx context.Context, served, passive string) {
	x.t.Helper()
	x.awaitSync(ctx)
	r := &restorable{system: x.system, t: x.t}
	backup := filepath.Join(x.t.TempDir(), "data")
	x.records.again(ctx, func(dir string) {
		if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
			x.t.Fatal(err)
		}
	})
	was := r.generation(ctx, passive)
	x.traffic.awaitWrites(ctx, served, x.traffic.processes.count(served)+20)
	r.livesOn(ctx, passive)
	x.records.again(ctx, func(dir string) {
		if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(backup))); err != nil {
			x.t.Fatal(err)
		}
	})
	r.rebuilds(ctx, passive, was)
}

// serve has the clients ask other servers from now on.
func (x *crossing) serve(servers ...*child) {
	tr := x.traffic
	tr.pause.Lock()
	defer tr.pause.Unlock()
	tr.servers, tr.client = servers, newBBSClient(x.http, servers...)
	for _, w := range tr.bbs {
		w.client = tr.client
	}
}

// same compares everything in both engines.
func (x *crossing) same(ctx context.Context) {
	x.t.Helper()
	eventually(ctx, x.t, "both engines hold the same", func() error {
		stream, err := x.apis()[0].Verify(ctx, connect.NewRequest(&dbv1.VerifyRequest{}))
		if err != nil {
			return err
		}
		var last *dbv1.VerifyReport
		for stream.Receive() {
			last = stream.Msg().GetReport()
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil {
			return err
		}
		if last == nil || last.GetCompared() == 0 || last.GetMismatched() > 0 {
			return fmt.Errorf("the comparison found %v", last)
		}
		return nil
	})
}

// inEtcd is the section of a version whose records are in etcd.
func inEtcd(endpoint, more string) string {
	return fmt.Sprintf(`{endpoints: ["%s"]%s}`, endpoint, more)
}

// TestCrossEnginePlan: the plan of a move to etcd tries all that it tries of one within MongoDB,
// a rehearsal takes place in etcd, and what etcd cannot hold is said before anything starts.
func TestCrossEnginePlan(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[]", records: map[string]string{"v2": inEtcd(sharedEtcd.endpoints(t)[0], ", maxRequestBytes: 65536")}})
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	server := s.server("server", 0).ready(ctx)
	x := &crossing{system: s, traffic: &traffic{system: s, processes: newLedger("process"), alone: true}}
	x.fillProcesses(ctx, server, 40)
	report := s.plan(ctx)
	for _, want := range []struct{ area, text string }{
		{"server", "etcd 3."}, {"server", "MongoDB"}, {"privileges", "all of this was tried"}, {"load", "can be measured"}, {"limits", "accepts records of up to 31."},
		{"fence", "class uuid"}, {"copy", "all can be migrated"}, {"space", "are free"}, {"rollback", "proved: "}, {"rehearsal", "can create and drop"},
	} {
		if c := finding(report, want.area, want.text); c == nil || c.GetVerdict() == dbv1.PlanCheck_FAILED {
			t.Errorf("nothing of %s that says %q", want.area, want.text)
		}
	}
	api, _ := controller.addresses()
	if r := execute(ctx, t, nil, "rehearse", "--server", api, "--sample", "20"); r.code != 0 {
		t.Errorf("the rehearsal ends with %d: %s%s", r.code, r.stdout, r.stderr)
	}

	large := process{guid: "large", made: 1, changed: 1}.v1()
	large.Annotation = strings.Repeat("large ", 10_000)
	if _, err := newBBSClient(s.http, server).v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: large})); err != nil {
		t.Fatal(err)
	}
	const want = "1 records have more than the 31."
	if c := finding(s.plan(ctx), "limits", want); c == nil || c.GetVerdict() != dbv1.PlanCheck_FAILED {
		t.Errorf("the plan does not fail by %q", want)
	}
	if r := execute(ctx, t, s.env, "plan", "--config", s.config); r.code != 1 || !strings.Contains(r.stdout, want) {
		t.Errorf("the plan without a controller ends with %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestEtcdLoginOfRecords: the records of a service are in an etcd that wants a login, which may
// read and write below the prefix and nothing else. Its password changes under traffic, and etcd
// is started again, so that everybody has to log in anew: no call fails but while it is away,
// and an upgrade leads out of there.
func TestEtcdLoginOfRecords(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	records := startSomeMembers(ctx, t, 1, nil)
	root := records.rootOf(ctx, "bbs", "p0", "/records/")
	s := newSystem(ctx, t, settings{kinds: "[]", records: map[string]string{
		"v1": inEtcd(records.endpoints()[0], ", prefix: /records, user: bbs, passwordFile: password"),
	}})
	s.write("password", "p0\n")
	x := &crossing{system: s, records: records, traffic: &traffic{system: s, processes: newLedger("process"), alone: true}}
	x.start(ctx)
	x.traffic.start(ctx, s.server("server", 0).ready(ctx))
	x.traffic.awaitWrites(ctx, "v1", 50)
	for round := 1; round <= 2; round++ {
		password := fmt.Sprint("p", round)
		s.write("password", password)
		if _, err := root.UserChangePassword(ctx, "bbs", password); err != nil {
			t.Fatal(err)
		}
		x.traffic.awaitWrites(ctx, "v1", x.traffic.processes.count("v1")+50)
	}
	x.traffic.processes.excuse(true)
	records.kill(0)
	records.start(0)
	x.traffic.awaitWrites(ctx, "v1", x.traffic.processes.count("v1")+50)
	x.traffic.pause.Lock() // what was under way has ended
	x.traffic.processes.excuse(false)
	x.traffic.pause.Unlock()
	s.begin(ctx)
	d := s.await(ctx, "the flip", flipped("v2"))
	x.traffic.awaitWrites(ctx, "v2", 20)
	x.traffic.settle(ctx, d)
	x.same(ctx)
}

// rootOf has etcd want logins, and makes a user who may use one prefix alone. It returns a
// connection of one who may do everything.
func (m *members) rootOf(ctx context.Context, user, password, prefix string) *clientv3.Client {
	m.t.Helper()
	etcd := m.clients[0]
	for _, do := range []func() error{
		func() error { _, err := etcd.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := etcd.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := etcd.RoleAdd(ctx, user); return err },
		func() error {
			_, err := etcd.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := etcd.UserAdd(ctx, user, password); return err },
		func() error { _, err := etcd.UserGrantRole(ctx, user, user); return err },
		func() error { _, err := etcd.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			m.t.Fatal(err)
		}
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: m.endpoints(), Username: "root", Password: "root", Logger: zap.NewNop()})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = root.Close() })
	return root
}

// TestCrossEngineEnd: after a move from etcd to MongoDB the deployment is lost, rebuilt from the
// marks in both engines, and completed, which leaves nothing of it in etcd.
func TestCrossEngineEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const prefix = "/records"
	records := startSomeMembers(ctx, t, 1, nil)
	s := newSystem(ctx, t, settings{kinds: "[]", records: map[string]string{"v1": inEtcd(records.endpoints()[0], ", prefix: "+prefix)}})
	x := &crossing{system: s, traffic: &traffic{system: s, processes: newLedger("process"), alone: true}}
	x.start(ctx)
	server := s.server("server", 0).ready(ctx)
	x.fillProcesses(ctx, server, 40)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	s.awaitMarked(ctx, 2) // in MongoDB
	eventually(ctx, t, "the mark of v1 in etcd", func() error {
		found, err := records.clients[0].Get(ctx, prefix+"/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range found.Kvs {
			var m struct{ Body identity.Mark }
			if strings.Contains(string(kv.Key), "/m/") && bson.Unmarshal(kv.Value, &m) == nil && m.Body.Epoch == 2 {
				return nil
			}
		}
		return errors.New("it is not of epoch 2")
	})
	server.kill()
	s.kill(x.controller)
	s.etcdBecomes(ctx, nil)

	s.refusesToRun(ctx, nil, "v1 of "+s.name+" used it", "run 'dbcontroller recover'")
	r := s.recover(ctx, "--dry-run")
	for _, want := range []string{"found: v1 in etcd://", "not the current version then", "found: v2 in mongodb://", "decided: v2 is the current version"} {
		if r.code != 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("it does not say %q: %+v", want, r)
		}
	}
	if r := s.recovered(ctx); r.code != 0 {
		t.Fatalf("recover: %+v", r)
	}
	x.start(ctx)
	api, _ := x.controller.addresses()
	complete := func(more ...string) result {
		return execute(ctx, t, nil, append([]string{"complete", "--server", api, "--version", "v1", "--ignore-usage", "--keep-for", "0s"}, more...)...)
	}
	confirm := complete().confirmation(t)
	if !strings.HasSuffix(confirm, "/etcd:"+prefix) {
		t.Errorf("it is confirmed by %s", confirm)
	}
	if r := complete("--confirm", confirm); r.code != 0 {
		t.Fatalf("complete: %+v", r)
	}
	eventually(ctx, t, "nothing is left in etcd", func() error {
		left, err := records.clients[0].Get(ctx, prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil && len(left.Kvs) > 0 {
			err = fmt.Errorf("%d keys, such as %s", len(left.Kvs), left.Kvs[0].Key)
		}
		return err
	})
}

// TestCrossEngineKeys: an application that keeps JSON in keys of its own in etcd is moved to
// MongoDB through a lens, and back. In the meantime its role may not write there, and its keys
// and documents are what it would have written itself.
func TestCrossEngineKeys(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const count = 50
	records := startSomeMembers(ctx, t, 1, nil)
	root := records.rootOf(ctx, "app", "app", "/app/packages/")
	app, err := clientv3.New(clientv3.Config{Endpoints: records.endpoints(), Username: "app", Password: "app", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	write := func(i int, n int64) error {
		key := packageKey(i)
		value := fmt.Sprintf(`{"name": "name of %[1]s", "n": {"$numberLong": "%[2]d"}, "section": "section of %[1]s", "text": %[3]q}`, key, n, strings.Repeat(key+" ", 12))
		_, err := app.Put(ctx, "/app/packages/"+key, value)
		return err
	}
	ledger := newLedger("package")
	for i := range count {
		if err := write(i, 0); err != nil {
			t.Fatal(err)
		}
		ledger.Put(packageKey(i), packageState(0))
	}
	s := newSystem(ctx, t, settings{records: map[string]string{"v1": inEtcd(records.endpoints()[0],
		", user: root, passwordFile: password, kinds: [{name: packages, prefix: /app/packages, format: json}]")}})
	s.write("password", "root")
	s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip to v2", flipped("v2"))
	if err := write(0, 1); err == nil {
		t.Error("the application may write its keys after the switch")
	}
	docs, err := s.rawPackages(ctx, "v2")
	if err != nil {
		t.Fatal(err)
	}
	s.report(ledger.check("MongoDB", docs))

	s.beginTo(ctx, "v1")
	s.await(ctx, "the flip to v1", flipped("v1"))
	eventually(ctx, t, "the application may write again", func() error { return write(0, 2) })
	keys, err := root.Get(ctx, "/app/packages/", clientv3.WithPrefix())
	if err != nil || len(keys.Kvs) != count || !strings.Contains(string(keys.Kvs[1].Value), `"section":`) || strings.Contains(string(keys.Kvs[1].Value), "schema") {
		t.Errorf("%v: %d keys, such as %s", err, len(keys.Kvs), keys.Kvs[1].Value)
	}
}
