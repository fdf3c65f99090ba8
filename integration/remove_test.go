package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/removal"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// odd is a kind whose name has characters of patterns, and which contains a name that controllers
// give.
const odd = "pack.*(ages)+n1"

// remove runs the command 'remove', or another one with the same flags.
func (s *system) remove(ctx context.Context, verb string, args ...string) result {
	s.t.Helper()
	return execute(ctx, s.t, s.env, append([]string{verb, "--config", s.config}, args...)...)
}

// stopped ends a controller, and waits until its leases have ended.
func (s *system) stopped(ctx context.Context, c *child) {
	s.t.Helper()
	if code := c.terminate(patience); code != 0 {
		s.t.Errorf("exit code %d", code)
	}
	s.forget(c)
	eventually(ctx, s.t, "nothing is alive", func() error {
		alive, err := s.record.Alive(ctx)
		if err == nil && len(alive) > 0 {
			err = fmt.Errorf("%v", alive)
		}
		return err
	})
}

// fuse ends a process at one of its changes: before it, or after it and before its answer. Every later
// call fails too.
type fuse struct {
	mu    sync.Mutex
	left  int
	after bool
	blown bool
}

var errBlown = errors.New("the process is dead")

func (f *fuse) around(do func() error) error {
	f.mu.Lock()
	f.left--
	blows := f.left < 0 && !f.blown
	if f.blown || blows && !f.after {
		f.blown = true
		f.mu.Unlock()
		return errBlown
	}
	f.blown = f.blown || blows
	f.mu.Unlock()
	err := do()
	if blows {
		return errBlown
	}
	return err
}

type fusedStore struct {
	coord.Store
	*fuse
}

func (s fusedStore) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (rev int64, err error) {
	err = s.around(func() error { rev, err = s.Store.Commit(ctx, conditions, ops); return err })
	return rev, err
}

type fusedDatabase struct {
	removal.Database
	*fuse
}

func (d fusedDatabase) Drop(ctx context.Context, tok record.Token) error {
	return d.around(func() error { return d.Database.Drop(ctx, tok) })
}

func (d fusedDatabase) Forget(ctx context.Context, tok record.Token) error {
	return d.around(func() error { return d.Database.Forget(ctx, tok) })
}

func (d fusedDatabase) Release(ctx context.Context, o record.Owner) error {
	return d.around(func() error { return d.Database.Release(ctx, o) })
}

func (d fusedDatabase) Unfence(ctx context.Context, f record.Fence) error {
	return d.around(func() error { return d.Database.Unfence(ctx, f) })
}

func (d fusedDatabase) PutMark(ctx context.Context, m record.Mark) error {
	return d.around(func() error { return d.Database.PutMark(ctx, m) })
}

func (d fusedDatabase) Vacate(ctx context.Context) (left []string, err error) {
	err = d.around(func() error { left, err = d.Database.Vacate(ctx); return err })
	return left, err
}

// dies carries out a removal with a process that dies at its n-th change. It returns the error.
func (s *system) dies(ctx context.Context, begin deployment.Removal, n int, after bool) error {
	s.t.Helper()
	cfg, err := config.Load(s.config, func(name string) (string, bool) {
		for _, env := range s.env {
			if value, is := strings.CutPrefix(env, name+"="); is {
				return value, true
			}
		}
		return "", false
	})
	if err != nil {
		s.t.Fatal(err)
	}
	set := databases.New(cfg, databases.Config{App: "test", Log: zap.NewNop()})
	defer set.Close(ctx)
	f := &fuse{left: n, after: after}
	store := deployment.New(fusedStore{s.etcd, f}, s.name, deployment.Config{})
	work := removal.Work{Store: store, Databases: map[string]removal.Database{}}
	for _, db := range cfg.DBs {
		work.Databases[db.Version] = fusedDatabase{set.Database(db.Version), f}
	}
	r, begun, err := store.Removal(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	if !begun {
		begin.Record, begin.Revision = r.Record, r.Revision
		if err := work.Check(ctx, begin); err != nil {
			s.t.Fatal(err)
		}
		if r, err = store.BeginRemoval(ctx, begin); err != nil {
			return err
		}
	}
	_, err = work.Do(ctx, r)
	return err
}

// diesEverywhere has a removal die again and again, each time from where the one before it came to. Each
// of deaths is how many changes a process makes; of every second one the last answer is lost.
func (s *system) diesEverywhere(ctx context.Context, begin deployment.Removal, deaths ...int) {
	s.t.Helper()
	for i, n := range deaths {
		if err := s.dies(ctx, begin, n, i%2 == 1); !errors.Is(err, errBlown) {
			s.t.Fatalf("death %d, at change %d: %v", i, n, err)
		}
	}
}

// names are the collections and views of a version's database.
func (s *system) names(ctx context.Context, version string) []string {
	s.t.Helper()
	// The server's own list of views stays when the last one is dropped.
	names, err := s.db[version].ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$ne", Value: "system.views"}}}})
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func (s *system) count(ctx context.Context, version, kind string) int64 {
	s.t.Helper()
	n, err := s.db[version].Collection(kind).CountDocuments(ctx, bson.D{})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// TestRemove removes a deployment that controllers have copied, with a process that dies in each step,
// and begins it again from zero under the same name. Nothing but the documents of the application is
// left in between.
func TestRemove(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{service: "shop", copy: "{auto: true, workers: 2}",
		kinds: `[{from: packages, to: packages, lens: packages.yaml}, {from: "` + odd + `", to: "` + odd + `", lens: packages.yaml}]`})
	for i := range 20 {
		for _, kind := range []string{packagesKind, odd} {
			if _, err := s.db["v1"].Collection(kind).InsertOne(ctx, packageDoc("v1", fmt.Sprint(i), 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A switch and a rollback leave ends of fences and of appliers. Its neighbour has a longer name.
	neighbour, err := deployment.New(s.etcd, s.name+"2", deployment.Config{}).Create(ctx, "v1", ring)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, key := range []string{"/dbcontroller/1/" + neighbour.Name + "/record", "/dbcontroller/1/index/" + neighbour.Name} {
			_, _ = s.etcd.Commit(context.WithoutCancel(ctx), nil, []coord.Op{{Key: key, Delete: true}})
		}
	})
	first := s.controller("first", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	s.await(ctx, "the sync back", upgradestate.ReverseSynced)
	s.remove(ctx, "remove", "--dry-run").refuses(t, "has the fence", "complete --version v1")
	s.beginTo(ctx, "v1")
	d := s.await(ctx, "the rollback", func(d upgradestate.Deployment) bool { return flipped("v1")(d) && upgradestate.ReverseSynced(d) })
	s.remove(ctx, "remove", "--dry-run").refuses(t, "has the fence", "complete --version v2")
	s.complete(ctx, d, "v2", 0)
	s.await(ctx, "the end of v2", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v2") })
	s.remove(ctx, "remove", "--dry-run").refuses(t, "controller first is alive", "stop all of them")
	s.stopped(ctx, first)

	s.unchanged(ctx, t, func() {
		preview := s.remove(ctx, "remove", "--dry-run")
		if preview.code != 0 || !strings.Contains(preview.stderr, "stays: collection "+packagesKind) || !strings.Contains(preview.stderr, "delete all keys of "+s.name) {
			t.Errorf("dry run: %+v", preview)
		}
		for want, res := range map[string]result{
			"nothing is removed yet: ": s.remove(ctx, "remove"),
			"confirms something else":  s.remove(ctx, "remove", "--confirm", s.name+"2/x"),
		} {
			if res.code == 0 || !strings.Contains(res.stderr, want) || res.confirmation(t) == "" {
				t.Errorf("without the confirmation: %+v, want %q", res, want)
			}
		}
	})
	confirm := s.remove(ctx, "remove").confirmation(t)
	// A removal that has done nothing yet is taken back, also by a call that is refused.
	r, _, err := s.record.Removal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.At, r.By = "2026-01-02T03:04:05Z", "a test"
	if _, err := s.record.BeginRemoval(ctx, r); err != nil {
		t.Fatal(err)
	}
	if res := s.remove(ctx, "remove"); res.code == 0 || !strings.Contains(res.stderr, "a test began a removal at 2026-01-02T03:04:05Z, which has removed nothing yet") {
		t.Errorf("remove: %+v", res)
	}
	if _, err := s.record.Get(ctx); err != nil {
		t.Errorf("the record is not back: %v", err)
	}
	s.diesEverywhere(ctx, deployment.Removal{At: "2026-01-02T03:04:05Z", By: "a test"}, 0, 1, 0, 0, 1, 1, 2, 3, 4, 5, 1, 1, 1)
	s.refusesToRun(ctx, nil, "is being removed since 2026-01-02T03:04:05Z, by a test", "run 'dbcontroller remove' again")
	s.remove(ctx, "forget-kinds").refuses(t, "is being removed since")
	s.recover(ctx).refuses(t, "is being removed since")
	res := s.remove(ctx, "remove", "--confirm", confirm)
	for _, want := range []string{"note: this continues what a test began", "done: " + s.name + " is removed"} {
		if res.code != 0 || !strings.Contains(res.stderr, want) {
			t.Fatalf("remove: %+v, want %q", res, want)
		}
	}
	if kvs := s.etcdKeys(ctx); len(kvs) > 0 {
		t.Errorf("etcd still has %d keys, such as %s", len(kvs), kvs[0].Key)
	}
	if _, err := deployment.New(s.etcd, neighbour.Name, deployment.Config{}).Get(ctx); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	if names := s.names(ctx, "v1"); !slices.Equal(names, []string{odd, packagesKind}) {
		t.Errorf("v1 has %q", names)
	}
	if n := s.count(ctx, "v1", odd) + s.count(ctx, "v1", packagesKind); n != 40 {
		t.Errorf("%d documents of 40 are left", n)
	}
	s.remove(ctx, "remove").refuses(t, "does not exist")

	// From zero, under the same name.
	second := s.controller("second", breakPoint{}).ready(ctx)
	s.begin(ctx)
	d = s.await(ctx, "the flip of the new deployment", flipped("v2"))
	if d.Epoch != 2 || s.count(ctx, "v2", odd)+s.count(ctx, "v2", packagesKind) != 40 {
		t.Errorf("epoch %d, %d documents", d.Epoch, s.count(ctx, "v2", odd)+s.count(ctx, "v2", packagesKind))
	}
	s.stopped(ctx, second)
}

// TestForgetKinds forgets a kind that the configuration no longer has, with a process that dies in each
// step. Then the rest can switch, and the kind can be configured again.
func TestForgetKinds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const entry = `, {from: "` + odd + `", to: "` + odd + `", lens: packages.yaml}`
	s := newSystem(ctx, t, settings{service: "shop", copy: "{auto: true, workers: 2}", kinds: "[{from: packages, to: packages, lens: packages.yaml}" + entry + "]"})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	if _, err := s.db["v1"].Collection(odd).InsertOne(ctx, packageDoc("v1", "b", 0)); err != nil {
		t.Fatal(err)
	}
	first := s.controller("first", breakPoint{}).ready(ctx)
	s.awaitSync(ctx)
	s.awaitKept(ctx)
	s.remove(ctx, "forget-kinds").refuses(t, "has all kinds")
	s.stopped(ctx, first)
	s.edit(replace(entry, ""))
	confirm := s.remove(ctx, "forget-kinds", "--drop-copies").confirmation(t)
	kinds := []deployment.RemovedKind{{Version: "v1", Kind: odd}, {Version: "v2", Kind: odd}}
	s.diesEverywhere(ctx, deployment.Removal{At: "2026-01-02T03:04:05Z", By: "a test", Kinds: kinds, DropCopies: true}, 0, 1, 0, 0, 1, 1, 2, 2, 3, 3)
	s.remove(ctx, "remove").refuses(t, "run 'dbcontroller forget-kinds' again")
	res := s.remove(ctx, "forget-kinds", "--confirm", confirm)
	if res.code != 0 || !strings.Contains(res.stderr, "no longer has "+odd+" of v1") {
		t.Fatalf("forget-kinds: %+v", res)
	}
	if names := s.names(ctx, "v2"); slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, odd) }) {
		t.Errorf("v2 still has %q", names)
	}
	if names := s.names(ctx, "v1"); !slices.Contains(names, odd) || slices.Contains(names, "dbc_guards."+odd) {
		t.Errorf("v1 has %q", names)
	}
	// It is configured again, with the controllers' first numbers.
	s.edit(replace("lens: packages.yaml}", "lens: packages.yaml}"+entry))
	s.controller("second", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if n := s.count(ctx, "v2", odd); n != 1 {
		t.Errorf("v2 has %d documents of the kind", n)
	}
}

// TestRemoveInEtcd is TestRemove with the collections of an application in etcd.
func TestRemoveInEtcd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	records := startSomeMembers(ctx, t, 1, nil)
	keys := records.rootOf(ctx, "app", "app", "/app/v1/")
	if _, err := keys.RoleGrantPermission(ctx, "app", "/app/v2/", clientv3.GetPrefixRangeEnd("/app/v2/"), clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	place := func(version string) string {
		return inEtcd(records.endpoints()[0], ", user: root, passwordFile: password, prefix: /dbc/"+version+", kinds: [{name: packages, prefix: /app/"+version+", format: json}]")
	}
	s := newSystem(ctx, t, settings{service: "shop", copy: "{auto: true, workers: 2}", records: map[string]string{"v1": place("v1"), "v2": place("v2")}})
	s.write("password", "root")
	const documents = 20
	for i := range documents {
		if _, err := keys.Put(ctx, fmt.Sprintf("/app/v1/%d", i), fmt.Sprintf(`{"name": "n%d", "section": "a", "text": "t", "n": 1}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	below := func(prefix string) int64 {
		t.Helper()
		resp, err := keys.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	first := s.controller("first", breakPoint{}).ready(ctx)
	s.awaitSync(ctx)
	s.stopped(ctx, first)
	confirm := s.remove(ctx, "remove", "--drop-copies").confirmation(t)
	s.diesEverywhere(ctx, deployment.Removal{At: "2026-01-02T03:04:05Z", By: "a test", DropCopies: true}, 0, 1, 0, 0, 1, 1, 2, 2)
	if res := s.remove(ctx, "remove", "--confirm", confirm); res.code != 0 {
		t.Fatalf("remove: %+v", res)
	}
	if left, copies, mine := below("/app/v1/"), below("/app/v2/"), below("/dbc/"); left != documents || copies != 0 || mine != 0 {
		t.Errorf("%d documents of %d, %d copies and %d other keys are left", left, documents, copies, mine)
	}
	s.controller("second", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip of the new deployment", flipped("v2"))
	if n := below("/app/v2/"); n != documents {
		t.Errorf("v2 has %d documents", n)
	}
}
