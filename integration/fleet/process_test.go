package fleet_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
)

// counting counts the requests to etcd, without the renewal of leases.
type counting struct {
	*etcdcoord.Store
	calls atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) (coord.KV, error) {
	c.calls.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counting) List(ctx context.Context, prefix string) ([]coord.KV, int64, error) {
	c.calls.Add(1)
	return c.Store.List(ctx, prefix)
}

func (c *counting) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	c.calls.Add(1)
	return c.Store.Commit(ctx, conditions, ops)
}

func (c *counting) Follow(ctx context.Context, prefix string) ([]coord.KV, int64, coord.Watch, error) {
	c.calls.Add(2) // it lists and watches
	return c.Store.Follow(ctx, prefix)
}

// running is one process of all deployments of a fleet.
type running struct {
	api, operator string
	end           func() error
}

// run runs all deployments as 'dbcontroller run' does with their folder.
func (f *fleet) run(store coord.Store, id string) *running {
	f.t.Helper()
	var all []app.Deployment
	for _, file := range f.files {
		cfg, err := config.Load(file, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		registry, carries, err := cli.Transformers(cfg, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, app.Deployment{Config: cfg, Registry: registry, Carry: carries})
	}
	core, logs := observer.New(zap.InfoLevel)
	hosted, err := app.NewFleet(all, store, app.Options{Options: controller.Options{ID: id, StartupWait: patience}}, zap.New(core))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if !f.t.Failed() {
			return
		}
		count := map[string]int{}
		for _, e := range logs.FilterLevelExact(zap.WarnLevel).All() {
			count[e.Message+": "+fmt.Sprint(e.ContextMap()["error"])]++
		}
		for text, n := range count {
			f.t.Logf("logged %d times: %s", n, text)
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hosted.Run(ctx) }()
	r := &running{end: func() error { stop(); return <-ended }}
	f.eventually("the process listens", func() error {
		for _, e := range logs.FilterMessage("controller listens").All() {
			fields := e.ContextMap()
			r.api, r.operator = "http://"+fmt.Sprint(fields["api"]), "http://"+fmt.Sprint(fields["operator"])
			return nil
		}
		return fmt.Errorf("no address")
	})
	return r
}

// eventually waits until ok returns nil.
func (f *fleet) eventually(what string, ok func() error) {
	f.t.Helper()
	var err error
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	f.t.Fatalf("%s: %v", what, err)
}

func (r *running) metrics(t *testing.T) string {
	t.Helper()
	res, err := http.Get(r.operator + "/metrics") // #nosec G107 -- the test's own process
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOneProcess runs several deployments in one process. One of them does not fit its record: it is
// shown with the reason and started again, and the others work meanwhile. At the end the process hands
// all of them over.
func TestOneProcess(t *testing.T) {
	const n = 8
	ctx := t.Context()
	f := newFleet(t, n)
	store := f.connect()
	t.Cleanup(func() { _ = store.Close() })
	stores := make([]*deployment.Store, n)
	for i, name := range f.names {
		stores[i] = deployment.New(store, name, deployment.Config{})
	}
	broken := n - 1
	if _, err := stores[broken].Create(ctx, "v1", 2); err != nil { // its file has a ring of 1
		t.Fatal(err)
	}
	r := f.run(store, "one")
	client := dbcontrollerv1connect.NewDeploymentServiceClient(http.DefaultClient, r.api)
	get := func(i int) (*dbv1.Deployment, error) {
		res, err := client.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{Name: f.names[i]}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	for i := range n - 1 {
		f.ready(ctx, stores[i])
	}
	// Only the controller of a deployment can plan its upgrade. So each call reaches its own.
	f.eventually("each deployment can be planned", func() error {
		for i, name := range f.names[:n-1] {
			if res, err := client.Plan(ctx, connect.NewRequest(&dbv1.PlanRequest{Name: name, TargetVersion: "v2"})); err != nil {
				return err
			} else if !strings.Contains(res.Msg.String(), f.dbs[i]+"_v2") {
				t.Fatalf("the plan of %s is about another database: %s", name, res.Msg)
			}
		}
		return nil
	})
	list, err := client.ListDeployments(ctx, connect.NewRequest(&dbv1.ListDeploymentsRequest{}))
	if err != nil || len(list.Msg.Deployments) != n {
		t.Errorf("the list has %d deployments, want %d: %v", len(list.Msg.GetDeployments()), n, err)
	}
	if _, err := client.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a call without a name: %v, want a refusal", err)
	}
	f.eventually("the deployment that does not fit is shown", func() error {
		d, err := get(broken)
		if err == nil && !strings.Contains(d.String(), "sharding.ringSize is 1") {
			err = fmt.Errorf("it shows %s", d)
		}
		return err
	})
	text := r.metrics(t)
	for i, name := range f.names {
		want := "1"
		if i == broken {
			want = "0"
		}
		if line := fmt.Sprintf("dbcontroller_controller_ready{deployment=%q} %s\n", name, want); !strings.Contains(text, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	res, err := http.Get(r.operator + "/readyz") // #nosec G107 -- the test's own process
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %v, %v", res, err)
	}
	_ = res.Body.Close()

	// All deployments have one database server, and one client there.
	own, err := f.connections(ctx)
	if err != nil || own > n*6 {
		t.Errorf("%d connections to MongoDB, want at most %d: %v", own, n*6, err)
	}

	// Whatever made it fail is corrected. It comes by itself.
	if _, err := store.Commit(ctx, nil, []coord.Op{{Key: deployment.DefaultPrefix + "/" + f.names[broken] + "/record", Delete: true}}); err != nil {
		t.Fatal(err)
	}
	f.ready(ctx, stores[broken])
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	for _, s := range stores {
		if left, err := s.Controllers(ctx); err != nil || len(left) > 0 {
			t.Errorf("%s still has %v: %v", s.Name(), left, err)
		}
	}
}

// connections returns the number of the controllers' connections to MongoDB.
func (f *fleet) connections(ctx context.Context) (int, error) {
	cursor, err := f.client.Database("admin").Aggregate(ctx, bson.A{
		bson.D{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleConnections", Value: true}}}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "appName", Value: "dbcontroller"}}}},
		bson.D{{Key: "$count", Value: "n"}},
	})
	if err != nil {
		return 0, err
	}
	var found []struct{ N int }
	if err := cursor.All(ctx, &found); err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0].N, nil
}

// TestManyAtRest measures many deployments at rest in one process, with a real MongoDB and a real etcd.
// docs/rollout.md has the figures. It runs on request only: make fleet.
func TestManyAtRest(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("DBCONTROLLER_FLEET"))
	if err != nil {
		t.Skip("it takes minutes: run 'make fleet'")
	}
	ctx := t.Context()
	f := newFleet(t, n)
	store := &counting{Store: f.connect()}
	t.Cleanup(func() { _ = store.Store.Close() })
	before, goroutines := heap(), runtime.NumGoroutine()
	begun := time.Now()
	r := f.run(store, "one")
	last := deployment.New(store.Store, f.names[0], deployment.Config{})
	f.eventually("all follow", func() error {
		all, _, err := last.All(ctx)
		if err != nil {
			return err
		}
		following := 0
		for _, d := range all {
			if len(d.Available) > 0 {
				s, err := last.Other(d.Name)
				if err != nil {
					return err
				}
				ps, err := s.Progress(ctx)
				if err != nil {
					return err
				}
				if len(ps) > 0 && ps[0].Agreed() {
					following++
				}
			}
		}
		if following < n {
			time.Sleep(time.Second)
			return fmt.Errorf("%d of %d", following, n)
		}
		return nil
	})
	t.Logf("all follow after %v", time.Since(begun).Round(time.Second))
	time.Sleep(30 * time.Second) // proofs of the rollback and first looks end
	calls, cpu, theirs, at := store.calls.Load(), processorTime(t), f.serverTime(ctx), time.Now()
	time.Sleep(time.Minute)
	took := time.Since(at)
	calls, cpu, theirs = store.calls.Load()-calls, processorTime(t)-cpu, f.serverTime(ctx)-theirs
	after := heap()
	connections, err := f.connections(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d deployments at rest in one process: %d MiB of heap, %d MiB of stacks, %d MiB resident, %d goroutines, %.0f requests to etcd a second (%.2f for each), %d connections to MongoDB, %.0f%% of a processor, and %.0f%% in MongoDB",
		n, (after.HeapAlloc-before.HeapAlloc)>>20, (after.StackInuse-before.StackInuse)>>20, resident(t)>>20, runtime.NumGoroutine()-goroutines,
		float64(calls)/took.Seconds(), float64(calls)/took.Seconds()/float64(n), connections, 100*cpu.Seconds()/took.Seconds(), 100*theirs.Seconds()/took.Seconds())
	begun = time.Now()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	t.Logf("all are handed over after %v", time.Since(begun).Round(time.Millisecond))
}

func heap() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// processorTime returns what this process has used, etcd and MongoDB excluded.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime returns what MongoDB has used.
func (f *fleet) serverTime(ctx context.Context) time.Duration {
	f.t.Helper()
	var status struct {
		Extra struct {
			User   int64 `bson:"user_time_us"`
			System int64 `bson:"system_time_us"`
		} `bson:"extra_info"`
	}
	if err := f.client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		f.t.Fatal(err)
	}
	return time.Duration(status.Extra.User+status.Extra.System) * time.Microsecond
}

// resident returns the memory of this process.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
