package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/controller/rollouts"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/upgradestate"
)

// fleet is many deployments with one coordination store.
type fleet struct {
	t     *testing.T
	coord *memcoord.Store
	names []string
	dbs   map[string]map[string]database
	api   *api.Service
	// fails is the wave whose check fails; 0 is none.
	fails int
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{t: t, coord: memcoord.New(), dbs: map[string]map[string]database{}}
	for i := range n {
		f.names = append(f.names, fmt.Sprintf("services/items/deployments/d%02d", i))
		f.dbs[f.names[i]] = memory()
	}
	f.api = api.New(f.coord, f.store(f.names[0]), api.Config{RolloutChecks: []string{"errors"}})
	return f
}

func (f *fleet) store(name string) *deployment.Store {
	return deployment.New(f.coord, name, deployment.Config{})
}

func (f *fleet) record(name string) upgradestate.Deployment {
	f.t.Helper()
	return must(f.store(name).Get(f.t.Context()))
}

// host starts one process with a controller for each deployment.
func (f *fleet) host(ctx context.Context, id string) *process {
	ctx, stop := context.WithCancel(ctx)
	p := &process{stop: stop, done: make(chan struct{}), conn: f.coord.Client()}
	shared := deployment.New(p.conn, f.names[0], deployment.Config{}).Rollouts()
	var all sync.WaitGroup
	for _, name := range f.names {
		set := (&system{shards: 1}).settings()
		set.Deployment = name
		set.RolloutChecks = map[string]rollouts.Check{"errors": {Timeout: time.Minute, Run: func(_ context.Context, env []string, _ []byte) error {
			if slices.Contains(env, fmt.Sprintf("DBCONTROLLER_WAVE=%d", f.fails)) {
				return errors.New("2 errors a second")
			}
			return nil
		}}}
		app := controller.New(set, registry(), p.conn, backend{f.dbs[name]}, controller.Options{ID: id, Rollouts: shared}, zap.NewNop())
		all.Go(func() {
			if err := app.Run(ctx, nil); err != nil && ctx.Err() == nil {
				f.t.Errorf("controller of %s in %s: %v", name, id, err)
			}
		})
	}
	go func() {
		defer close(p.done)
		defer stop()
		all.Wait()
	}()
	return p
}

// ready waits until every deployment can upgrade.
func (f *fleet) ready(ctx context.Context) {
	f.t.Helper()
	for _, name := range f.names {
		for d := range f.store(name).Watch(ctx) {
			if len(d.Available) > 0 {
				break
			}
		}
	}
}

// begin begins a rollout in waves of equal size.
func (f *fleet) begin(ctx context.Context, size int) {
	f.t.Helper()
	hold := int64(5000)
	req := &dbv1.BeginRolloutRequest{Name: "r", TargetVersion: "v2", Policy: &dbv1.RolloutPolicy{HoldMs: &hold, GateLimitMs: 60_000, PauseMs: 10_000, Checks: []string{"errors"}}}
	for wave := range slices.Chunk(f.names, size) {
		w := &dbv1.RolloutWave{}
		for _, name := range wave {
			w.Deployments = append(w.Deployments, &dbv1.RolloutDeployment{Name: name})
		}
		req.Waves = append(req.Waves, w)
	}
	if _, err := f.api.BeginRollout(ctx, connect.NewRequest(req)); err != nil {
		f.t.Fatal(err)
	}
}

// end waits until the rollout needs no driver.
func (f *fleet) end(ctx context.Context) rollout.Rollout {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	for all := range f.store(f.names[0]).Rollouts().Watch(ctx) {
		if len(all) == 1 && !rollout.Active(all[0]) {
			return all[0]
		}
	}
	r := must(f.store(f.names[0]).Rollouts().Get(context.WithoutCancel(ctx), "r"))
	f.t.Fatalf("the rollout does not end: %+v", r)
	return r
}

// check holds the promises of a rollout of which the third wave has failed.
func (f *fleet) check(r rollout.Rollout, size int) {
	f.t.Helper()
	if r.State != rollout.RolledBack || r.Wave != 2 || !strings.HasPrefix(r.Reason, "wave 3: its gate has not passed after 1m0s: ") || !strings.Contains(r.Reason, "check errors: 2 errors a second") {
		f.t.Errorf("the rollout is %s in wave %d: %s", r.State, r.Wave+1, r.Reason)
	}
	for i, name := range f.names {
		d := f.record(name)
		upgrades := 0
		for _, e := range d.History {
			if e.What == "upgrade" {
				upgrades++
				if !strings.HasPrefix(e.By, "rollout r of ") {
					f.t.Errorf("%s: upgrade %s by %q", name, e.ID, e.By)
				}
			}
		}
		version, want := "v2", 1
		switch i / size {
		case 2:
			version, want = "v1", 2
		case 3:
			version, want = "v1", 0
		}
		if d.CurrentVersion != version || d.Upgrade != nil || upgrades != want {
			f.t.Errorf("%s of wave %d serves %s after %d upgrades, want %s after %d", name, i/size+1, d.CurrentVersion, upgrades, version, want)
		}
		if i/size == 3 && d.LastUpgradeID != "" {
			f.t.Errorf("%s of the last wave was touched: %s", name, d.LastUpgradeID)
		}
	}
}

// TestRolloutOfTwenty: 20 deployments of one process in 4 waves. The third fails its gate: its
// deployments go back, and those of the fourth are untouched.
func TestRolloutOfTwenty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := newFleet(t, 20)
		f.fails = 3
		p := f.host(ctx, "a")
		f.ready(ctx)
		f.begin(ctx, 5)
		f.check(f.end(ctx), 5)
		// The cause is mended: the rollout goes on with the wave that failed.
		f.fails = 0
		_, err := f.api.ChangeRollout(ctx, connect.NewRequest(&dbv1.ChangeRolloutRequest{Name: "r", Verb: dbv1.ChangeRolloutRequest_RESUME}))
		if err != nil {
			t.Fatal(err)
		}
		if r := f.end(ctx); r.State != rollout.Done {
			t.Errorf("the resumed rollout is %s: %s", r.State, r.Reason)
		}
		for _, name := range f.names {
			if d := f.record(name); d.CurrentVersion != "v2" {
				t.Errorf("%s serves %s", name, d.CurrentVersion)
			}
		}
		p.stop()
		<-p.done
	})
}

// TestRolloutKilledAtEachStep: whenever the process of all controllers dies, before or after it
// stores a step of the rollout or begins or ends an upgrade for it, the next one goes on.
func TestRolloutKilledAtEachStep(t *testing.T) {
	raced.Leave(t)
	t.Parallel()
	steps := 0
	synctest.Test(t, func(t *testing.T) { steps = killedRollout(t, -1, memcoord.Deliver) })
	if steps < 15 {
		t.Fatalf("a rollout has %d steps: the test no longer finds them", steps)
	}
	for n := range steps {
		for name, fault := range map[string]memcoord.Fault{"before": memcoord.LoseRequest, "after": memcoord.LoseAnswer} {
			t.Run(fmt.Sprintf("%s step %d", name, n), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { killedRollout(t, n, fault) })
			})
		}
	}
}

// killedRollout runs a rollout over 8 deployments and kills the first host at its n-th step. It
// returns the number of steps that the first host has made.
func killedRollout(t *testing.T, n int, fault memcoord.Fault) int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := newFleet(t, 8)
	f.fails = 3
	p := f.host(ctx, "a")
	f.ready(ctx)
	var mu sync.Mutex
	steps, began := 0, map[string]bool{}
	died := make(chan struct{})
	p.conn.OnCommit(func(_ []coord.Condition, ops []coord.Op) memcoord.Fault {
		mu.Lock()
		defer mu.Unlock()
		for _, op := range ops {
			var d upgradestate.Deployment
			isStep := strings.Contains(op.Key, "/rollouts/")
			if strings.HasSuffix(op.Key, "/record") && json.Unmarshal(op.Value, &d) == nil && d.Upgrade != nil && !began[d.Upgrade.ID] {
				began[d.Upgrade.ID], isStep = true, true
			}
			if !isStep {
				continue
			}
			if steps++; steps == n+1 {
				p.conn.Cut()
				p.stop()
				close(died)
				return fault
			}
		}
		return memcoord.Deliver
	})
	f.begin(ctx, 2)
	if n >= 0 {
		<-died
		<-p.done
		p = f.host(ctx, "b")
	}
	f.check(f.end(ctx), 2)
	p.stop()
	<-p.done
	return steps
}
