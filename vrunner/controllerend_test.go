package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// TestControllersAtTheEnd: Run returns when controllers have stopped, and does not wait
// for ever for those that do not.
func TestControllersAtTheEnd(t *testing.T) {
	for label, takes := range map[string]time.Duration{"stops": time.Second, "does not": time.Hour} {
		t.Run(label, func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				j, s := &journal{}, &service{}
				running, stop := context.WithCancel(ctx)
				defer stop()
				_, ended := start(running, consumer{w.store, &announced{}}, w.clients(), s.stacks(func(string, *vrunner.View) []vrunner.Controller {
					return []vrunner.Controller{{Name: "slow", Run: func(ctx context.Context) error {
						<-ctx.Done()
						j.add("ended for a switch: %t", errors.Is(context.Cause(ctx), vrunner.ErrEnded))
						<-time.After(takes)
						return nil
					}}}
				}, nil), vrunner.Config{}, nil)
				start := time.Now()
				stop()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if took := time.Since(start); took != min(takes, 3*time.Second) {
					t.Errorf("Run took %s to end", took)
				}
				j.want(t, "ended for a switch: false")
				<-time.After(takes)
			})
		})
	}
}

// TestControllersOfADeafServer: what it missed, it learns from the first write that the
// database refuses.
func TestControllersOfADeafServer(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, s := &journal{}, &service{}
		wake := make(chan struct{})
		start(ctx, deaf{consumer{w.store, &announced{}}}, w.clients(), s.stacks(func(version string, v *vrunner.View) []vrunner.Controller {
			return []vrunner.Controller{{Name: "c", Run: func(ctx context.Context) error {
				j.add("%s runs", version)
				select {
				case <-wake:
				case <-ctx.Done():
				}
				err := beat(ctx, version, v, "x")
				j.add("%s refused: %t, over: %t", version, errors.Is(err, record.ErrFenced), ctx.Err() != nil)
				return err
			}}}
		}, nil), vrunner.Config{}, nil)
		w.begin(ctx)
		w.until(ctx, open("v2"))
		j.want(t, "v1 runs")
		wake <- struct{}{}
		j.want(t, "v1 refused: true, over: true", "v2 runs")
		if all := w.stored(ctx, "v1", "old") + w.stored(ctx, "v2", "new"); all != "" {
			t.Errorf("%q was written", all)
		}
	})
}

// unread is a consumer whose linearizable reads fail until they are allowed.
type unread struct {
	consumer
	allowed chan struct{}
}

func (u unread) Get(ctx context.Context) (upgradestate.Deployment, error) {
	select {
	case <-u.allowed:
		return u.consumer.Get(ctx)
	default:
		return upgradestate.Deployment{}, errors.New("no quorum")
	}
}

// TestControllersNeedALinearizableRead, which stacks of handlers do without where there is
// none.
func TestControllersNeedALinearizableRead(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, s := &journal{}, &service{}
		u := unread{consumer{w.store, &announced{}}, make(chan struct{})}
		r, _ := start(ctx, u, w.clients(), s.stacks(keeper(j), nil), vrunner.Config{}, nil)
		<-time.After(time.Minute)
		j.want(t)
		expect(t, "write", send(ctx, r, put("a", "1")), http.StatusOK, "v1")
		close(u.allowed)
		<-time.After(2 * time.Second)
		j.want(t, "v1 runs, writes: <nil>")
	})
}

// late is a consumer whose watch stays at an early record.
type late struct {
	consumer
	early upgradestate.Deployment
}

func (l late) Watch(ctx context.Context) <-chan upgradestate.Deployment {
	ch := make(chan upgradestate.Deployment, 1)
	ch <- l.early
	go func() { <-ctx.Done(); close(ch) }()
	return ch
}

// TestControllersOfALateServer: those of the previous version are not even started.
func TestControllersOfALateServer(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, s := &journal{}, &service{}
		early := w.get(ctx)
		w.flip(ctx, "u1", "v2")
		start(ctx, late{consumer{w.store, &announced{}}, early}, w.clients(), s.stacks(keeper(j), nil), vrunner.Config{}, nil)
		j.want(t, "v2 runs, writes: <nil>")
	})
}

// TestControllersAlone: a process without an API.
func TestControllersAlone(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, a := &journal{}, &announced{}
		r, _ := start(ctx, consumer{w.store, a}, w.clients(), func(version string, views map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{Controllers: keeper(j)(version, views[version])}
		}, vrunner.Config{}, nil)
		expect(t, "request", send(ctx, r, put("a", "1")), http.StatusNotFound, "")
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		if said := a.last(); said.AckID != "u1" || strings.Join(said.Versions, " ") != "v1 v2" {
			t.Errorf("announced %+v", said)
		}
		w.until(ctx, open("v2"))
		j.want(t, "v1 runs, writes: <nil>", "v1 ended: true, writes: true", "v2 runs, writes: <nil>")
	})
}

// TestLeader: of several servers one runs the controller; another one when it is lost, and
// each version's has its own election.
func TestLeader(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, root := &journal{}, memcoord.New()
		conns := map[string]*memcoord.Store{}
		for _, id := range []string{"one", "two"} {
			conn := root.Client()
			conns[id] = conn
			build := func(version string, _ map[string]*vrunner.View) vrunner.Stack {
				return vrunner.Stack{Controllers: []vrunner.Controller{{Name: "c", Leader: true, Run: func(ctx context.Context) error {
					j.add("%s leads for %s", id, version)
					if id == "one" {
						return nil // done, and nobody else needs to
					}
					<-ctx.Done()
					return ctx.Err()
				}}}}
			}
			lead := func(ctx context.Context, name string, work func(context.Context) error) error {
				return shards.Lead(ctx, conn, "controllers/"+name, id, zap.NewNop(), work)
			}
			start(ctx, consumer{w.store, &announced{}}, w.clients(), build, vrunner.Config{ID: id, Lead: lead}, nil)
		}
		<-time.After(time.Hour)
		j.want(t, "one leads for v1")
		conns["one"].Cut()
		<-time.After(time.Minute)
		j.want(t, "two leads for v1")
		w.flip(ctx, "u1", "v2")
		<-time.After(time.Minute)
		j.want(t, "two leads for v2")
		conns["one"].Heal()
		<-time.After(time.Minute)
		j.want(t)
		w.flip(ctx, "u2", "v1")
		<-time.After(time.Minute)
		synctest.Wait()
		j.mu.Lock()
		defer j.mu.Unlock()
		// The server that learns of the hold last may lead for v2 once more before it does.
		v1 := slices.DeleteFunc(j.lines, func(line string) bool { return strings.HasSuffix(line, " leads for v2") })
		if len(v1) != 1 || !strings.HasSuffix(v1[0], " leads for v1") {
			t.Errorf("after the rollback: %v", j.lines)
		}
	})
}

// TestStubbornLeader: an election of a version that was left holds nobody up, also when
// that version is active again.
func TestStubbornLeader(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		j, root := &journal{}, memcoord.New()
		stop := make(chan struct{})
		stuck := false
		build := func(version string, _ map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{Controllers: []vrunner.Controller{{Name: "c", Leader: true, Run: func(ctx context.Context) error {
				j.add("leads for %s", version)
				if !stuck {
					stuck = true
					<-stop
				}
				<-ctx.Done()
				return ctx.Err()
			}}}}
		}
		lead := func(ctx context.Context, name string, work func(context.Context) error) error {
			return shards.Lead(ctx, root, "controllers/"+name, "one", zap.NewNop(), work)
		}
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), build, vrunner.Config{Lead: lead}, nil)
		j.want(t, "leads for v1")
		for n, version := range []string{"v2", "v1"} {
			w.flip(ctx, fmt.Sprint("u", n), version)
			<-time.After(10 * time.Second)
			j.want(t, "leads for "+version)
		}
		close(stop)
		synctest.Wait()
		if n := r.Controllers(); n != (vrunner.ControllerCount{Running: 1}) {
			t.Errorf("%+v", n)
		}
	})
}
