package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// journal is what the controllers of a test did, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// want compares what was added since the last call.
func (j *journal) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	if got, want := strings.Join(j.lines, "\n"), strings.Join(lines, "\n"); got != want {
		t.Errorf("controllers did\n%s\nwant\n%s", got, want)
	}
	j.lines = nil
}

// stacks are the service's, with controllers and fixtures.
func (s *service) stacks(controllers func(version string, v *vrunner.View) []vrunner.Controller, fixtures map[string][]record.Record) func(string, map[string]*vrunner.View) vrunner.Stack {
	return func(version string, views map[string]*vrunner.View) vrunner.Stack {
		stack := s.stack(version, views)
		if controllers != nil {
			stack.Controllers = controllers(version, views[version])
		}
		stack.Fixtures = fixtures[version]
		return stack
	}
}

// start runs a server with stacks until ctx ends; the channel delivers what Run returned.
func start(ctx context.Context, d vrunner.Deployments, clients map[string]vrunner.Database, build func(string, map[string]*vrunner.View) vrunner.Stack, cfg vrunner.Config, log *slog.Logger) (*vrunner.Runner, <-chan error) {
	if cfg.ID == "" {
		cfg.ID = "server"
	}
	r := vrunner.New(d, clients, build, cfg, log)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	return r, ended
}

// beat writes a record as a controller does.
func beat(ctx context.Context, version string, v *vrunner.View, name string) error {
	return v.Write(ctx, []record.Mutation{{Kind: kindOf[version], Key: record.StringKey(name), Doc: doc(name, version)}})
}

// keeper writes a record when it starts, and reports how it ends.
func keeper(j *journal) func(string, *vrunner.View) []vrunner.Controller {
	return func(version string, v *vrunner.View) []vrunner.Controller {
		return []vrunner.Controller{{Name: "keeper", Run: func(ctx context.Context) error {
			j.add("%s runs, writes: %v", version, beat(ctx, version, v, "by "+version))
			<-ctx.Done()
			j.add("%s ended: %t, writes: %t", version, errors.Is(context.Cause(ctx), vrunner.ErrEnded),
				errors.Is(beat(ctx, version, v, "late"), vrunner.ErrEnded))
			return ctx.Err()
		}}}
	}
}

// inWorld runs a test in simulated time; ctx ends with it.
func inWorld(t *testing.T, test func(ctx context.Context, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		test(ctx, newWorld(ctx, t, plain))
	})
}

// flip switches to a version, under an id of its own.
func (w *world) flip(ctx context.Context, id, target string) {
	w.t.Helper()
	w.apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: target, TransformHash: "h"}})
	w.apply(ctx, upgradestate.Begin{ID: id, TargetVersion: target})
	w.until(ctx, at(upgradestate.StepHold))
	synctest.Wait()
	w.until(ctx, open(target))
	synctest.Wait()
}

// TestControllers run while their version is active, there and back and there again.
func TestControllers(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, s := &journal{}, &service{}
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), s.stacks(keeper(j), nil), vrunner.Config{}, nil)
		j.want(t, "v1 runs, writes: <nil>")
		w.begin(ctx)
		synctest.Wait()
		j.want(t)
		w.until(ctx, at(upgradestate.StepHold))
		j.want(t, "v1 ended: true, writes: true")
		if n := r.Controllers(); n != (vrunner.ControllerCount{}) {
			t.Errorf("%+v during the switch", n)
		}
		w.until(ctx, sealed)
		j.want(t)
		w.until(ctx, open("v2"))
		j.want(t, "v2 runs, writes: <nil>")
		for n, version := range []string{"v1", "v2", "v1"} {
			w.flip(ctx, fmt.Sprintf("again-%d", n), version)
			other := map[string]string{"v1": "v2", "v2": "v1"}[version]
			j.want(t, other+" ended: true, writes: true", version+" runs, writes: <nil>")
		}
		if n := r.Controllers(); n != (vrunner.ControllerCount{Running: 1}) {
			t.Errorf("%+v", n)
		}
		if v1, v2 := w.stored(ctx, "v1", "old"), w.stored(ctx, "v2", "new"); v1 != "by v1" || v2 != "by v2" {
			t.Errorf("v1 holds %q, v2 %q", v1, v2)
		}
	})
}

// TestControllersAfterAnAbort run again, with tokens of the renamed kinds.
func TestControllersAfterAnAbort(t *testing.T) {
	for _, step := range []upgradestate.Step{upgradestate.StepHold, upgradestate.StepDrain, upgradestate.StepSealSource} {
		t.Run(string(step), func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				j, s := &journal{}, &service{}
				start(ctx, consumer{w.store, &announced{}}, w.clients(), s.stacks(keeper(j), nil), vrunner.Config{}, nil)
				w.begin(ctx)
				w.until(ctx, at(step))
				j.want(t, "v1 runs, writes: <nil>", "v1 ended: true, writes: true")
				w.apply(ctx, upgradestate.Abort{ID: "u1", Reason: "test"})
				w.until(ctx, open("v1"))
				j.want(t, "v1 runs, writes: <nil>")
				if v2 := w.stored(ctx, "v2", "new"); v2 != "" {
					t.Errorf("v2 holds %q", v2)
				}
			})
		})
	}
}

// TestControllerWriteInFlight is finished before the hold is acknowledged, though its
// context has ended.
func TestControllerWriteInFlight(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, s, a := &journal{}, &service{}, &announced{}
		slow := faultstore.NewGate(1)
		clients := w.clients()
		clients["v1"] = vrunner.Database{Client: faultstore.WrapClient(w.db["v1"], faultstore.On(slow, faultstore.Write))}
		start(ctx, consumer{w.store, a}, clients, s.stacks(keeper(j), nil), vrunner.Config{}, nil)
		<-slow.Held()
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		<-time.After(time.Second)
		if said := a.last(); said.AckID != "" {
			t.Fatalf("acknowledged %+v with a write in flight", said)
		}
		slow.Open()
		j.want(t, "v1 runs, writes: <nil>", "v1 ended: true, writes: true")
		if said := a.last(); said.AckID != "u1" {
			t.Errorf("announced %+v", said)
		}
		w.until(ctx, open("v2"))
		j.want(t, "v2 runs, writes: <nil>")
		if v1 := w.stored(ctx, "v1", "old"); v1 != "by v1" {
			t.Errorf("v1 holds %q", v1)
		}
	})
}

// TestControllerDeadline: a deadline of the controller's own ends its write.
func TestControllerDeadline(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, s := &journal{}, &service{}
		clients := w.clients()
		clients["v1"] = vrunner.Database{Client: faultstore.WrapClient(w.db["v1"], faultstore.On(faultstore.Nth(1, faultstore.Fault{Latency: time.Hour}), faultstore.Write))}
		start(ctx, consumer{w.store, &announced{}}, clients, s.stacks(func(version string, v *vrunner.View) []vrunner.Controller {
			return []vrunner.Controller{{Name: "hasty", Run: func(ctx context.Context) error {
				start := time.Now()
				short, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				err := beat(short, version, v, "x")
				j.add("%t after %s", err != nil, time.Since(start))
				return nil
			}}}
		}, nil), vrunner.Config{}, nil)
		<-time.After(3 * time.Second)
		j.want(t, "true after 2s")
	})
}

// TestDetachedController: a write that waits at the gate, whatever its context, does not
// get into the next version, nor into its own after an abort or two flips.
func TestDetachedController(t *testing.T) {
	for label, end := range map[string]func(ctx context.Context, w *world){
		"flip":  func(ctx context.Context, w *world) { w.until(ctx, open("v2")) },
		"abort": func(ctx context.Context, w *world) { w.apply(ctx, upgradestate.Abort{ID: "u1", Reason: "test"}) },
	} {
		t.Run(label, func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				j, s := &journal{}, &service{}
				started := false
				r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), s.stacks(func(version string, v *vrunner.View) []vrunner.Controller {
					return []vrunner.Controller{{Name: "detached", Run: func(ctx context.Context) error {
						if started {
							return nil
						}
						started = true
						<-ctx.Done()
						j.add("held: %t", errors.Is(beat(context.WithoutCancel(ctx), version, v, "late"), vrunner.ErrEnded))
						return nil
					}}}
				}, nil), vrunner.Config{}, nil)
				w.begin(ctx)
				w.until(ctx, at(upgradestate.StepHold))
				synctest.Wait()
				if n := r.State().Held; n != 1 {
					t.Errorf("%d are held", n)
				}
				j.want(t)
				end(ctx, w)
				w.until(ctx, func(d upgradestate.Deployment) bool {
					return d.Upgrade == nil || d.Upgrade.State != upgradestate.Switching
				})
				j.want(t, "held: true")
				if all := w.stored(ctx, "v1", "old") + w.stored(ctx, "v2", "new"); all != "" {
					t.Errorf("%q was written", all)
				}
			})
		})
	}
}

// TestStubbornController does not stop the switch, nor for long the next version's
// controllers. It is counted until it stops, and writes nothing.
func TestStubbornController(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, s, a := &journal{}, &service{}, &announced{}
		stop := make(chan struct{})
		log, logged := observer.New(zap.WarnLevel)
		r, _ := start(ctx, consumer{w.store, a}, w.clients(), s.stacks(func(version string, v *vrunner.View) []vrunner.Controller {
			if version == "v2" {
				return keeper(j)(version, v)
			}
			return []vrunner.Controller{{Name: "stubborn", Run: func(ctx context.Context) error {
				<-stop
				j.add("stubborn writes: %t", errors.Is(beat(context.WithoutCancel(ctx), version, v, "late"), vrunner.ErrEnded))
				return nil
			}}}
		}, nil), vrunner.Config{}, zaplog.New(zap.New(log)))
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		if said := a.last(); said.AckID != "u1" {
			t.Errorf("not acknowledged: %+v", said)
		}
		w.until(ctx, open("v2"))
		expect(t, "write", send(ctx, r, put("a", "1")), http.StatusOK, "v2")
		j.want(t)
		<-time.After(3 * time.Second)
		j.want(t, "v2 runs, writes: <nil>")
		if n := r.Controllers(); n.Running != 2 || n.Overdue != 1 {
			t.Errorf("%+v", n)
		}
		if n := logged.FilterField(zap.String("controller", "stubborn")).Len(); n != 1 {
			t.Errorf("%d warnings", n)
		}
		close(stop)
		j.want(t, "stubborn writes: true")
		if n := r.Controllers(); n != (vrunner.ControllerCount{Running: 1}) {
			t.Errorf("%+v after it stopped", n)
		}
		if v1 := w.stored(ctx, "v1", "old"); v1 != "" {
			t.Errorf("v1 holds %q", v1)
		}
	})
}

// TestFailingControllers are run again after a pause that grows; what is done is not, until
// the next switch.
func TestFailingControllers(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		s := &service{}
		var mu sync.Mutex
		runs := map[string][]time.Duration{}
		at := time.Now()
		ran := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			runs[name] = append(runs[name], time.Since(at))
		}
		log, logged := observer.New(zap.WarnLevel)
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), s.stacks(func(version string, _ *vrunner.View) []vrunner.Controller {
			return []vrunner.Controller{
				{Name: "panics", Run: func(context.Context) error { ran("panics"); panic("on purpose") }},
				{Name: "fails", Run: func(context.Context) error { ran("fails"); return errors.New("on purpose") }},
				{Name: "done", Run: func(context.Context) error { ran("done on " + version); return nil }},
			}
		}, nil), vrunner.Config{}, zaplog.New(zap.New(log)))
		<-time.After(10 * time.Minute)
		w.begin(ctx)
		w.until(ctx, open("v2"))
		synctest.Wait()
		for _, name := range []string{"panics", "fails"} {
			if n := len(runs[name]); n < 20 || n > 60 {
				t.Errorf("%s ran %d times in 10 minutes: %v", name, n, runs[name])
			}
		}
		if len(runs["done on v1"]) != 1 || len(runs["done on v2"]) != 1 {
			t.Errorf("ran %v", runs)
		}
		if n := r.Controllers(); n.Restarts < 40 {
			t.Errorf("%+v", n)
		}
		panics := logged.FilterField(zap.String("controller", "panics")).All()
		if len(panics) == 0 || !strings.Contains(string(panics[0].ContextMap()["stack"].(string)), "TestFailingControllers") {
			t.Errorf("logged %+v", panics)
		}
	})
}

// broken is a client that panics.
type broken struct{ record.Client }

func (broken) Write(context.Context, record.Tokens, []record.Mutation) error { panic("on purpose") }

// TestPanicInAWrite: what a client breaks off is in flight no more, so that the server
// acknowledges the next hold.
func TestPanicInAWrite(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		s, a := &service{}, &announced{}
		clients := w.clients()
		clients["v1"] = vrunner.Database{Client: broken{w.db["v1"]}, Watcher: w.db["v1"]}
		r, _ := start(ctx, consumer{w.store, a}, clients, s.stacks(keeper(&journal{}), nil), vrunner.Config{}, nil)
		if n := r.Controllers(); n.Restarts == 0 {
			t.Fatalf("%+v: nothing panicked", n)
		}
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		if said := a.last(); said.AckID != "u1" {
			t.Errorf("not acknowledged: %+v", said)
		}
	})
}

// TestStacksThatCannotRun are refused at the start, with what is missing.
func TestStacksThatCannotRun(t *testing.T) {
	idle := func(context.Context) error { return nil }
	fixture := record.Record{Kind: "old", Key: record.StringKey("a"), Doc: doc("a", "1")}
	for want, stack := range map[string]vrunner.Stack{
		"a controller of v1 needs a name and Run":                              {Controllers: []vrunner.Controller{{Name: "x"}}},
		"two controllers of v1 are called x":                                   {Controllers: []vrunner.Controller{{Name: "x", Run: idle}, {Name: "x", Run: idle}}},
		"controller x of v1 runs on one server: Config.Lead is needed":         {Controllers: []vrunner.Controller{{Name: "x", Run: idle, Leader: true}}},
		`fixtures of v1: "" a: a kind, a key and a document are needed`:        {Fixtures: []record.Record{{Key: fixture.Key, Doc: fixture.Doc}}},
		"fixtures of v1: old a is there twice":                                 {Fixtures: []record.Record{fixture, fixture}},
		"fixtures of v1: its client, a vrunner_test.plainClient, is no record": {Fixtures: []record.Record{fixture}},
	} {
		t.Run(want, func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				db := vrunner.Database{Client: w.db["v1"]}
				if strings.Contains(want, "plainClient") {
					db.Client = plainClient{w.db["v1"]}
				}
				r := vrunner.New(consumer{deployment.New(memcoord.New(), "services/s/deployments/d", deployment.Config{}), &announced{}},
					map[string]vrunner.Database{"v1": db}, func(string, map[string]*vrunner.View) vrunner.Stack { return stack }, vrunner.Config{ID: "server"}, nil)
				if err := r.Run(ctx); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
			})
		})
	}
}

// plainClient cannot create once.
type plainClient struct{ record.Client }
