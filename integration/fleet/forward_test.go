package fleet_test

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
	"dbcontroller.dev/upgradestate"
)

// forwarding is controllers that send calls on to each other, with TLS and tokens.
type forwarding struct {
	*fleet
	dir  string
	port map[string]int // by controller
}

// controllers start one after the other in tests, so each gets its port beforehand.
func newForwarding(t *testing.T, ids ...string) *forwarding {
	t.Helper()
	f := &forwarding{fleet: &fleet{t: t, client: mongotest.Client(t)}, dir: t.TempDir(), port: map[string]int{}}
	ports, err := subprocess.FreePorts(len(ids))
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		f.port[id] = ports[i]
	}
	authority := accesstest.NewAuthority(t)
	authority.File(t, filepath.Join(f.dir, "ca.crt"))
	authority.Files(t, f.dir, "listener", accesstest.Leaf{Subject: pkix.Name{CommonName: "controller"}})
	f.write(filepath.Join(f.dir, "tokens"), "operator operator-0123456789abcdef\nviewer viewer-0123456789abcdef\n")
	f.write(filepath.Join(f.dir, "operator"), "operator-0123456789abcdef")
	f.write(filepath.Join(f.dir, "viewer"), "viewer-0123456789abcdef")
	f.write(filepath.Join(f.dir, "lens.yaml"), "lens: 1\noperations:\n  - rename: {from: section, to: category}\n")
	return f
}

func (f *forwarding) url(id string) string { return fmt.Sprintf("https://127.0.0.1:%d", f.port[id]) }

// start runs a controller of one deployment. kill ends it without a farewell to etcd.
func (f *forwarding) start(id, etcd, name, db, regions string) (kill func()) {
	f.t.Helper()
	uri, _ := mongotest.Database(f.t)
	file := filepath.Join(f.dir, id+".yaml")
	f.write(file, fmt.Sprintf(`deployment: %s
etcd: {endpoints: [%q]}
sharding: {ringSize: 1}
api:
  listen: "127.0.0.1:%d"
  address: %q
  peers: {caFile: ca.crt}
  regions: %s
operator: {listen: "127.0.0.1:0"}
access:
  tls: {cert: listener.crt, key: listener.key}
  tokens: tokens
  roles: {operator: ["token:operator"], viewer: ["token:viewer"]}
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: %q, database: %s_v1}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: %q, database: %s_v2}}
kinds:
- {from: goods, to: goods, lens: lens.yaml}
`, name, etcd, f.port[id], f.url(id), regions, uri, db, uri, db))
	cfg, err := config.Load(file, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	registry, carries, err := cli.Transformers(cfg, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.etcd = []string{etcd}
	store := f.connect()
	a := app.New(cfg, registry, store, app.Options{Options: controller.Options{ID: id, Carry: carries, StartupWait: patience}}, zap.NewNop())
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil && ctx.Err() == nil {
			f.t.Errorf("%s: %v", id, err)
		}
	})
	kill = sync.OnceFunc(func() {
		_ = store.Close() // leases run out by themselves
		stop()
		running.Wait()
	})
	f.t.Cleanup(kill)
	return kill
}

// command runs the command line with the API of one controller.
func (f *forwarding) command(ctx context.Context, id, token string, args ...string) (out string, err error) {
	var b bytes.Buffer
	cmd := cli.Command(nil)
	cmd.SetArgs(append(args, "--server", f.url(id), "--tls-ca", filepath.Join(f.dir, "ca.crt"), "--token-file", filepath.Join(f.dir, token)))
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	err = cmd.ExecuteContext(ctx)
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, b.String())
	}
	return b.String(), err
}

// record reads a deployment from its etcd.
func (f *forwarding) record(ctx context.Context, etcd, name string) (upgradestate.Deployment, error) {
	f.etcd = []string{etcd}
	store := f.connect()
	defer func() { _ = store.Close() }()
	return deployment.New(store, name, deployment.Config{}).Get(ctx)
}

// TestOneAddress upgrades the deployments of another controller and of another region by the command line
// at one controller, and goes back while the controller dies that the calls went to.
func TestOneAddress(t *testing.T) {
	ctx := t.Context()
	f := newForwarding(t, "here", "owner", "second", "far")
	_, prefix := mongotest.Database(t)
	const ours, theirs, far = "services/shop/deployments/ours", "services/shop/deployments/theirs", "services/shop/deployments/far"
	dbs := map[string]string{ours: prefix + "_ours", theirs: prefix + "_theirs", far: prefix + "_far"}
	for _, db := range dbs {
		if _, err := f.client.Database(db+"_v1").Collection("goods").InsertOne(ctx, bson.D{{Key: "_id", Value: "g"}, {Key: "section", Value: db}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, v := range []string{"_v1", "_v2"} {
				_ = f.client.Database(db + v).Drop(context.Background())
			}
		})
	}
	etcd, etcdOfFar := localetcd.Start(t, localetcd.Options{}), localetcd.Start(t, localetcd.Options{})
	at := map[string]string{theirs: etcd, far: etcdOfFar}
	regions := fmt.Sprintf("[{name: eu, controllers: [%q], caFile: ca.crt}]", f.url("far"))
	f.start("far", etcdOfFar, far, dbs[far], "[]")
	f.start("here", etcd, ours, dbs[ours], regions)
	killOwner := f.start("owner", etcd, theirs, dbs[theirs], "[]")

	f.eventually("one list has all of them", func() error {
		out, err := f.command(ctx, "here", "viewer", "list")
		if err == nil && !(strings.Contains(out, ours+" ") && strings.Contains(out, theirs+" ") && strings.Contains(out, far+" ") && strings.Contains(out, " eu\n")) {
			err = fmt.Errorf("the list is\n%s", out)
		}
		return err
	})
	for _, name := range []string{theirs, far} {
		f.eventually(name+" can be planned", func() error {
			out, err := f.command(ctx, "here", "operator", "plan", "--json", "--name", name)
			if !strings.Contains(out, dbs[name]+"_v2") {
				return fmt.Errorf("the plan is %s: %w", out, err)
			}
			return nil
		})
		// The right to look is no right to change, whoever carries it out.
		if out, err := f.command(ctx, "here", "viewer", "begin-upgrade", "deployment", "--target-version", "v2", "--name", name); err == nil || !strings.Contains(err.Error(), "wants the role operator") {
			t.Errorf("a viewer begins: %v\n%s", err, out)
		}
		f.eventually(name+" begins", func() error {
			_, err := f.command(ctx, "here", "operator", "begin-upgrade", "deployment", "--target-version", "v2", "--name", name)
			return err
		})
		if out, err := f.command(ctx, "here", "viewer", "watch", "deployment", "--until-version", "v2", "--name", name, "--timeout", patience.String()); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var r struct{ Category string }
		if d, err := f.record(ctx, at[name], name); err != nil {
			t.Error(err)
		} else if ns, ok := d.Namespace("v2"); !ok {
			t.Errorf("%s lacks v2", name)
		} else if k, _ := ns.Kind("goods"); f.client.Database(dbs[name]+"_v2").Collection(k.Physical).FindOne(ctx, bson.D{{Key: "_id", Value: "g"}}).Decode(&r) != nil || r.Category != dbs[name] {
			t.Errorf("%s serves %+v", name, r)
		}
	}

	// The controller that the calls go to dies while its deployment is watched. The next one carries on.
	f.start("second", etcd, theirs, dbs[theirs], "[]")
	watched := make(chan error, 1)
	go func() {
		_, err := f.command(ctx, "here", "viewer", "watch", "deployment", "--until-version", "v1", "--name", theirs, "--timeout", patience.String())
		watched <- err
	}()
	f.eventually("the way back begins", func() error {
		_, err := f.command(ctx, "here", "operator", "rollback", "--name", theirs)
		return err
	})
	killOwner()
	if err := <-watched; err != nil {
		t.Fatal(err)
	}
	if d, err := f.record(ctx, etcd, theirs); err != nil || d.CurrentVersion != "v1" {
		t.Errorf("%s serves %s: %v", theirs, d.CurrentVersion, err)
	}
}
