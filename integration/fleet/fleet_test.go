// Package fleet_test runs rollouts over many deployments with a real MongoDB and a real etcd.
package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/upgradestate"
)

func TestMain(m *testing.M) {
	code := mongotest.Run(m)
	localetcd.Remove()
	os.Exit(code)
}

// patience is the limit of a wait. The machine may run other tests.
const patience = 8 * time.Minute

const (
	deployments = 20
	perWave     = 5
	records     = 3 // of a deployment
)

// fleet is many small deployments with one MongoDB and one etcd.
type fleet struct {
	t      *testing.T
	etcd   []string
	client *mongo.Client
	names  []string
	dbs    []string // of a deployment, without the version
	files  []string
	bad    string // if this file exists, the check fails in wave 3
}

func newFleet(t *testing.T, deployments int) *fleet {
	t.Helper()
	uri, prefix := mongotest.Database(t)
	f := &fleet{t: t, etcd: []string{localetcd.Start(t, localetcd.Options{})}, client: mongotest.Client(t)}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tenants"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.bad = filepath.Join(dir, "bad")
	f.write(f.bad, "")
	f.write(filepath.Join(dir, "lens.yaml"), "lens: 1\noperations:\n  - rename: {from: section, to: category}\n")
	for i := range deployments {
		name, db := fmt.Sprintf("services/shop/deployments/tenant-%03d", i), fmt.Sprintf("%s_%03d", prefix, i)
		file := filepath.Join(dir, "tenants", fmt.Sprintf("%03d.yaml", i))
		f.write(file, fmt.Sprintf(`deployment: %s
etcd: {endpoints: [%q]}
sharding: {ringSize: 1}
api: {listen: "127.0.0.1:0", page: false}
operator: {listen: "127.0.0.1:0"}
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: %q, database: %s_v1}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: %q, database: %s_v2}}
kinds:
- {from: goods, to: goods, lens: ../lens.yaml}
rollouts:
  checks:
  - {name: errors, command: [/bin/sh, -c, 'test "$DBCONTROLLER_WAVE" != 3 || test ! -e %s']}
`, name, f.etcd[0], uri, db, uri, db, f.bad))
		f.names, f.dbs, f.files = append(f.names, name), append(f.dbs, db), append(f.files, file)
		for k := range records {
			if _, err := f.client.Database(db+"_v1").Collection("goods").InsertOne(t.Context(), bson.D{{Key: "_id", Value: fmt.Sprint("g", k)}, {Key: "section", Value: name}}); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			for _, v := range []string{"_v1", "_v2"} {
				_ = f.client.Database(db + v).Drop(context.Background())
			}
		})
	}
	return f
}

func (f *fleet) write(path, text string) {
	f.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) connect() *etcdcoord.Store {
	f.t.Helper()
	s, err := etcdcoord.Open(f.t.Context(), etcdcoord.Config{Endpoints: f.etcd, Log: zap.NewNop()})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// host runs a controller for each deployment, with one connection to etcd. kill ends all of them
// without a farewell to etcd.
func (f *fleet) host(id string) (kill func()) {
	f.t.Helper()
	store := f.connect()
	ctx, stop := context.WithCancel(context.Background())
	shared := deployment.New(store, f.names[0], deployment.Config{}).Rollouts()
	var all sync.WaitGroup
	for _, file := range f.files {
		cfg, err := config.Load(file, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		registry, carries, err := cli.Transformers(cfg, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		a := app.New(cfg, registry, store, app.Options{Options: controller.Options{ID: id, Carry: carries, Rollouts: shared, StartupWait: patience}}, zap.NewNop())
		all.Go(func() {
			if err := a.Run(ctx); err != nil && ctx.Err() == nil {
				f.t.Errorf("%s in %s: %v", cfg.Deployment, id, err)
			}
		})
	}
	kill = sync.OnceFunc(func() {
		_ = store.Close() // leases run out by themselves
		stop()
		all.Wait()
	})
	f.t.Cleanup(kill)
	return kill
}

// await waits until a rollout satisfies ok.
func (f *fleet) await(ctx context.Context, all *deployment.Rollouts, what string, ok func(rollout.Rollout) bool) rollout.Rollout {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last rollout.Rollout
	for list := range all.Watch(ctx) {
		for _, r := range list {
			if last = r; ok(r) {
				return r
			}
		}
	}
	f.t.Fatalf("%s did not come: %+v", what, last)
	return last
}

// TestRolloutOfManyDeployments: 20 deployments in 4 waves, with a real MongoDB and etcd. The process of
// all controllers is killed in the second wave and again while the third goes back. The third fails
// its gate: its deployments serve v1 again with their records, and the fourth is untouched.
func TestRolloutOfManyDeployments(t *testing.T) {
	ctx := t.Context()
	f := newFleet(t, deployments)
	kill := f.host("first")
	store := f.connect()
	t.Cleanup(func() { _ = store.Close() })
	stores := make([]*deployment.Store, len(f.names))
	for i, name := range f.names {
		stores[i] = deployment.New(store, name, deployment.Config{})
		f.ready(ctx, stores[i])
	}
	rollouts := stores[0].Rollouts()
	service := api.New(store, stores[0], api.Config{RolloutChecks: []string{"errors"}})
	hold := int64(1000)
	req := &dbv1.BeginRolloutRequest{Name: "to-v2", TargetVersion: "v2", RequestedBy: "a test", Policy: &dbv1.RolloutPolicy{HoldMs: &hold, GateLimitMs: 45_000, Checks: []string{"errors"}}}
	for wave := range slices.Chunk(f.names, perWave) {
		w := &dbv1.RolloutWave{}
		for _, name := range wave {
			w.Deployments = append(w.Deployments, &dbv1.RolloutDeployment{Name: name})
		}
		req.Waves = append(req.Waves, w)
	}
	if _, err := service.BeginRollout(ctx, connect.NewRequest(req)); err != nil {
		t.Fatal(err)
	}
	f.await(ctx, rollouts, "the second wave", func(r rollout.Rollout) bool { return r.Wave == 1 && r.Waves[1].Items[0].Order != "" })
	kill()
	kill = f.host("second")
	f.await(ctx, rollouts, "the rollback", func(r rollout.Rollout) bool { return r.State == rollout.RollingBack })
	kill()
	f.host("third")
	r := f.await(ctx, rollouts, "the end", func(r rollout.Rollout) bool { return !rollout.Active(r) })
	if r.State != rollout.RolledBack || r.Wave != 2 || !strings.Contains(r.Reason, "check errors: it ends with exit status 1") {
		t.Errorf("the rollout is %s in wave %d: %s", r.State, r.Wave+1, r.Reason)
	}
	for i, s := range stores {
		f.check(ctx, i, s)
	}
}

func (f *fleet) ready(ctx context.Context, s *deployment.Store) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for d := range s.Watch(ctx) {
		if len(d.Available) > 0 {
			return
		}
	}
	f.t.Fatalf("%s cannot upgrade", s.Name())
}

// check holds what the end of the rollout promises about one deployment.
func (f *fleet) check(ctx context.Context, i int, s *deployment.Store) {
	f.t.Helper()
	d, err := s.Get(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	version, field, upgrades := "v1", "section", 0
	switch i / perWave {
	case 0, 1:
		version, field, upgrades = "v2", "category", 1
	case 2:
		upgrades = 2
	}
	begun := 0
	for _, e := range d.History {
		if e.What == "upgrade" {
			begun++
		}
	}
	if d.CurrentVersion != version || d.Upgrade != nil || begun != upgrades || (upgrades == 0) != (d.LastUpgradeID == "") {
		f.t.Errorf("%s of wave %d serves %s after %d upgrades, want %s after %d", s.Name(), i/perWave+1, d.CurrentVersion, begun, version, upgrades)
	}
	if n, err := f.served(ctx, d, f.dbs[i], field, s.Name()); err != nil || n != records {
		f.t.Errorf("%s serves %d records with their %s, want %d: %v", s.Name(), n, field, records, err)
	}
}

// served counts the records that applications find.
func (f *fleet) served(ctx context.Context, d upgradestate.Deployment, db, field, value string) (int64, error) {
	ns, ok := d.Namespace(d.CurrentVersion)
	if !ok {
		return 0, errors.New("the record lacks the version")
	}
	k, _ := ns.Kind("goods")
	return f.client.Database(db+"_"+d.CurrentVersion).Collection(k.Physical).CountDocuments(ctx, bson.D{{Key: field, Value: value}})
}
