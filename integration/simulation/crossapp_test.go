package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/upgradestate"
)

// crossApp is an application whose keys are in a real etcd, as JSON, and go to a collection as in
// MongoDB, and back. It writes where the Deployment says, and asks again where it is refused.
type crossApp struct {
	*system
	etcd *clientv3.Client
	mem  *memstore.Store
	want map[string]int64 // by name; nobody deletes "always"
}

const appKeys = "/app/" + docs + "/"

func newCrossApp(ctx context.Context, t *testing.T) *crossApp {
	t.Helper()
	endpoint := localetcd.Start(t, localetcd.Options{})
	login := func(user string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Username: user, Password: user, DialTimeout: time.Minute, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	plain := login("")
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"root", "app"} {
		check(plain.RoleAdd(ctx, name))
		check(plain.UserAdd(ctx, name, name))
		check(plain.UserGrantRole(ctx, name, name))
	}
	check(plain.RoleGrantPermission(ctx, "app", appKeys, clientv3.GetPrefixRangeEnd(appKeys), clientv3.PermissionType(clientv3.PermReadWrite)))
	check(plain.AuthEnable(ctx))
	store, err := etcdstore.New(&etcdconn.Conn{Client: login("root")}, etcdstore.Config{
		Prefix: "/records/", Fixed: map[string]etcdstore.Keys{docs: {Prefix: appKeys, Format: etcdstore.JSON}},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &crossApp{etcd: login("app"), mem: memstore.NewCluster(memstore.Options{Start: 1 << 40}).Open("new"), want: map[string]int64{}}
	for i := range 50 {
		name := fmt.Sprintf("eu/%02d", i)
		a.want[name] = 0
		check(a.etcd.Put(ctx, appKeys+name, jsonOf(0)))
	}
	a.system = newSystemOf(ctx, t, map[string]database{"v1": store, "v2": a.mem}, fixedRegistry(), nil)
	a.quiet()
	a.holdTimeout, a.lagBound = 100*time.Millisecond, 3*time.Second
	return a
}

func jsonOf(n int64) string { return fmt.Sprintf(`{"n": {"$numberLong": "%d"}}`, n) }

// write is done, or is to be asked about again.
func (a *crossApp) write(ctx context.Context, name string, n int64) (done bool) {
	d, err := a.admin.Get(ctx)
	a.check(err)
	version, places := upgradestate.WritePlaces(d)
	switch {
	case len(places) == 0:
		return false
	case version == "v2" && n < 0:
		err = a.mem.Foreign().Delete(ctx, docs, idOf(name))
	case version == "v2":
		err = a.mem.Foreign().Put(ctx, docs, newDoc(name, n))
	case n < 0:
		_, err = a.etcd.Delete(ctx, appKeys+name)
	default:
		_, err = a.etcd.Put(ctx, appKeys+name, jsonOf(n))
	}
	if err != nil && !errors.Is(err, memstore.ErrRejected) && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		a.t.Errorf("write: %v", err)
	}
	return err == nil
}

func (a *crossApp) run(ctx context.Context) {
	for n := int64(1); ctx.Err() == nil; n++ {
		name, is := fmt.Sprintf("eu/%02d", n*7%50), n
		if n%5 == 0 {
			is = -1
		}
		for !a.write(context.WithoutCancel(ctx), name, is) {
			pass(time.Millisecond)
		}
		a.want[name] = is
		pass(2 * time.Millisecond)
	}
}

// compare finds what the application finds in a version.
func (a *crossApp) compare(ctx context.Context, version string) {
	a.t.Helper()
	found := map[string]int64{}
	if version == "v1" {
		resp, err := a.etcd.Get(ctx, appKeys, clientv3.WithPrefix())
		a.check(err)
		for _, kv := range resp.Kvs {
			var d struct {
				N int64 `bson:"n"`
			}
			a.check(bson.UnmarshalExtJSON(kv.Value, false, &d))
			found[strings.TrimPrefix(string(kv.Key), appKeys)] = d.N
		}
	} else {
		all, err := a.mem.Foreign().Documents(ctx, docs)
		a.check(err)
		for _, d := range all {
			found[d.Lookup("_id").StringValue()] = d.Lookup("n").AsInt64()
		}
	}
	for name, n := range a.want {
		if have, there := found[name]; there != (n >= 0) || there && have != n {
			a.t.Errorf("%s: %s is %d (%t), want %d", version, name, have, there, n)
		}
		delete(found, name)
	}
	if len(found) > 0 {
		a.t.Errorf("%s has %v, which nobody wrote", version, found)
	}
}

// TestCrossEngineApplication: an application goes on writing while its keys go to the other
// engine, back, and there again; what it was acknowledged is there each time. A value that is no
// document is parked by its name until it is written otherwise.
func TestCrossEngineApplication(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a := newCrossApp(ctx, t)
	if _, err := a.etcd.Put(ctx, appKeys+"bad", "secret"); err != nil {
		t.Fatal(err)
	}
	c := a.controller(ctx, "controller-1", nil)
	var parked []string
	for len(parked) == 0 && ctx.Err() == nil {
		pass(20 * time.Millisecond)
		all, err := a.admin.ParkedNow(ctx)
		a.check(err)
		for _, p := range all {
			parked = append(parked, p.Key+": "+p.Error)
		}
	}
	if len(parked) != 1 || !strings.HasPrefix(parked[0], "bad: ") || !strings.Contains(parked[0], "not a JSON object") || strings.Contains(parked[0], "secret") {
		t.Errorf("parked: %q", parked)
	}
	if _, err := a.etcd.Delete(ctx, appKeys+"bad"); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"v2", "v1", "v2"} {
		writing, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { a.run(writing) })
		a.switchTo(ctx, to)
		a.await(ctx, "writes to "+to, func(d upgradestate.Deployment) bool {
			_, places := upgradestate.WritePlaces(d)
			return d.CurrentVersion == to && len(places) > 0
		})
		pass(300 * time.Millisecond)
		stop()
		wg.Wait()
		a.compare(ctx, to)
	}
	cancel()
	c.kill()
}
