package simulation_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestTakeoverReplaysFromTheCheckpoint: the changes between the checkpoint of a killed
// controller and the present place of the stream of the one that takes over. The whole
// comparison is over by then, so that nothing else would find them.
func TestTakeoverReplaysFromTheCheckpoint(t *testing.T) {
	raced.Leave(t)
	for seed := range uint64(1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSystem(ctx, t)
				a, pa := s.server(ctx, "server-a", nil)
				tr := newTraffic(t, a)
				stop := drive(ctx, tr, seed, 6, 1500, 15*time.Millisecond)
				c1 := s.controller(ctx, "controller-1", nil)
				c2 := s.controller(ctx, "controller-2", nil)
				pass(15 * time.Second) // copied, compared, in sync
				c1.kill()
				pass(6 * time.Second) // the lease runs out, the other one adopts
				stop()
				pass(3 * time.Second)
				s.begin(ctx)
				s.await(ctx, "the flip", active("v2"))
				tr.settle(ctx, s)
				cancel()
				pa.kill()
				c2.kill()
			})
		})
	}
}

// TestAnnouncementOfThePast: a controller starts right after a flip, and by the time that it
// announces the rollback another one has made it. It announces what is possible then, and
// goes on.
func TestAnnouncementOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		tp, died := mortal(moment{"flipped", 0})
		s.controllerProcess(ctx, "controller-1", tp.wrap)
		s.begin(ctx)
		<-soon(t, died).done
		var meanwhile sync.Once
		var other *process
		rollBack := func() {
			other = s.controller(ctx, "controller-2", nil)
			s.await(ctx, "the announcement", func(d upgradestate.Deployment) bool { return len(d.Available) > 0 })
			s.beginTo(ctx, "v1")
			s.await(ctx, "the rollback", active("v1"))
		}
		late := s.controllerProcess(ctx, "controller-3", func(p *process, _ string, ns record.Namespace) record.Namespace {
			p.conn.OnCommit(func(_ []coord.Condition, ops []coord.Op) memcoord.Fault {
				if slices.ContainsFunc(ops, func(op coord.Op) bool { return strings.HasSuffix(op.Key, "/record") }) {
					meanwhile.Do(rollBack)
				}
				return memcoord.Deliver
			})
			return ns
		})
		s.await(ctx, "the rollback", active("v1"))
		pass(time.Second)
		other.kill()
		s.beginTo(ctx, "v2") // the late one is alone now
		s.await(ctx, "the flip", active("v2"))
		cancel()
		late.kill()
	})
}

// slowLoad holds back the Load of one record until it is released.
type slowLoad struct {
	record.Namespace
	once             sync.Once
	entered, release chan struct{}
}

func (l *slowLoad) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	for _, g := range b.Groups {
		for _, w := range g.Writes {
			if w.Key == record.StringKey("victim") {
				l.once.Do(func() { close(l.entered) })
				<-l.release
			}
		}
	}
	return l.Namespace.Load(ctx, b)
}

// TestLateSuccessDoesNotUnpark: a copy of an older state arrives after the newest one was
// parked. The group stays parked, and blocks the switch until somebody fixes it.
func TestLateSuccessDoesNotUnpark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		a, pa := s.server(ctx, "server-a", nil)
		put := func(name string, n int64) {
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodPut, fmt.Sprintf("/items/%s?n=%d&parts=1", name, n), nil))
			if w.Code != http.StatusOK {
				t.Fatal(w.Code, w.Body)
			}
		}
		put("victim", 1)
		l := &slowLoad{entered: make(chan struct{}), release: make(chan struct{})}
		c1 := s.controller(ctx, "controller-1", func(v string, ns record.Namespace) record.Namespace {
			if v != "v2" {
				return ns
			}
			l.Namespace = ns
			return l
		})
		<-l.entered
		put("victim", -5) // acknowledged, and cannot be transformed
		parked := func() int {
			list, err := s.admin.ParkedNow(ctx)
			s.check(err)
			return len(list)
		}
		for since := time.Now(); parked() == 0; pass(10 * time.Millisecond) {
			if time.Since(since) > time.Minute {
				t.Fatal("what cannot be transformed is not parked")
			}
		}
		close(l.release)
		s.begin(ctx)
		pass(time.Minute)
		d, err := s.admin.Get(ctx)
		s.check(err)
		if d.CurrentVersion != "v1" || parked() != 1 {
			t.Fatalf("version %s is active with %d parked, want v1 with 1", d.CurrentVersion, parked())
		}
		put("victim", 7)
		s.await(ctx, "the flip after the fix", active("v2"))
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/victim", nil))
		if got := w.Body.String(); got != "{\"ID\":\"victim\",\"N\":7,\"Parts\":1}\n" {
			t.Errorf("v2 answers %s", got)
		}
		cancel()
		pa.kill()
		c1.kill()
	})
}
