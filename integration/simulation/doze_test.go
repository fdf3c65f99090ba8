package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// dozer is a sleeper that counts what was refused when it woke up.
type dozer struct {
	*sleeper
	refused *atomic.Int64
}

func (c dozer) Write(ctx context.Context, toks record.Tokens, ms []record.Mutation) error {
	slept := c.asleep.Load()
	err := c.sleeper.Write(ctx, toks, ms)
	if slept && errors.Is(err, record.ErrFenced) {
		c.refused.Add(1)
	}
	return err
}

// TestServerSleepsOverTheReverseSync: writes pass the gate with the tokens of a version, and
// their server stops; it goes on after an abort, after one flip or two, or after the rollback
// to the snapshot. Each token is refused by the database, unless nothing was fenced; the
// namespace that was left does not change, and each request has one effect in the other.
func TestServerSleepsOverTheReverseSync(t *testing.T) {
	for i, what := range []string{"abort before the fence", "abort in DRAIN", "abort at the flip", "rollback", "there and back", "snapshot", "aborted snapshot"} {
		for seed := range seeds(2) {
			t.Run(fmt.Sprintf("%s/%d", what, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { dozeOver(t, uint64(i)*10+seed, what) })
			})
		}
	}
}

func dozeOver(t *testing.T, seed uint64, what string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	from := "v1" // what the tokens are of
	switch what {
	case "rollback", "snapshot", "aborted snapshot":
		from = "v2"
	}
	var effects, refused atomic.Int64
	asleep := &sleeper{wake: make(chan struct{}), effects: &effects}
	a, pa := s.server(ctx, "server-a", func(version string, c record.Client) record.Client {
		if version == from {
			asleep.Client = c
			return dozer{asleep, &refused}
		}
		return &sleeper{Client: c, effects: &effects}
	})
	b, pb := s.server(ctx, "server-b", nil)
	for i := range 10 {
		request(t, b, http.MethodPut, fmt.Sprintf("sleepy-%d", i), fmt.Sprintf("?n=%d&parts=2", i))
	}
	if from == "v2" {
		first := s.controller(ctx, "first", nil)
		s.switchTo(ctx, "v2")
		first.kill()
		pass(3 * time.Second) // server-a is there as well
	}

	asleep.asleep.Store(true)
	effects.Store(0)
	var wg sync.WaitGroup
	answers := make([]*httptest.ResponseRecorder, 10)
	for i := range answers {
		wg.Go(func() {
			method, query := http.MethodPut, fmt.Sprintf("?n=%d&parts=1", 100+i)
			if i%3 == 0 {
				method, query = http.MethodDelete, ""
			}
			answers[i] = httptest.NewRecorder()
			a.ServeHTTP(answers[i], httptest.NewRequest(method, fmt.Sprintf("/items/sleepy-%d%s", i, query), nil))
		})
	}
	for asleep.waiting.Load() < 10 {
		pass(time.Millisecond)
	}

	active, tp := from, &trap{}
	abortAt := func(m moment) {
		tp.moment, tp.spring = m, func(*process) {
			_, err := s.admin.Apply(ctx, upgradestate.Abort{Reason: "a test"})
			s.check(err)
		}
	}
	var running map[string]*process
	start := func(begin func()) { begin(); running = s.started(ctx, "controller", 2, tp) }
	switch what {
	case "abort before the fence":
		abortAt(moment{"to FENCE", 0})
		start(func() { s.beginTo(ctx, "v2") })
		s.await(ctx, "the abort", wasAborted)
	case "abort in DRAIN":
		abortAt(moment{"to SEAL_TARGET", 0})
		start(func() { s.beginTo(ctx, "v2") })
		s.await(ctx, "the abort", wasAborted)
	case "abort at the flip":
		abortAt(moment{"flip", 0})
		start(func() { s.beginTo(ctx, "v2") })
		s.await(ctx, "the abort", wasAborted)
	case "rollback":
		start(func() {})
		s.switchTo(ctx, "v1")
		active = "v1"
	case "there and back":
		start(func() {})
		s.switchTo(ctx, "v2")
		pass(time.Second)
		s.switchTo(ctx, "v1")
	case "snapshot":
		start(func() { s.beginSnapshot(ctx, "v1") })
		s.await(ctx, "the snapshot", func(d upgradestate.Deployment) bool { return d.CurrentVersion == "v1" && d.Upgrade == nil })
		active = "v1"
	case "aborted snapshot":
		abortAt(moment{"flip v1", 0})
		start(func() { s.beginSnapshot(ctx, "v1") })
		s.await(ctx, "the abort", wasAborted)
	}
	pass(time.Duration(1+seed%2) * time.Second)
	for _, p := range running {
		p.kill() // nothing is synced from now on
	}
	left := s.contents(ctx, other(active))
	want := s.contents(ctx, active)
	asleep.asleep.Store(false)
	close(asleep.wake)
	wg.Wait()
	for i, w := range answers {
		if w.Code != http.StatusOK || w.Header().Get("Version") != active {
			t.Errorf("request %d was answered %d %s by %q", i, w.Code, w.Body, w.Header().Get("Version"))
		}
		forget(want, fmt.Sprintf("sleepy-%d", i))
		if it := (oldItem{fmt.Sprintf("sleepy-%d", i), int64(100 + i), 1}); i%3 > 0 && active == "v1" {
			put1(want, it)
		} else if i%3 > 0 {
			put2(want, it)
		}
	}
	expect := int64(10)
	if what == "abort before the fence" {
		expect = 0
	}
	if n := refused.Load(); n != expect {
		t.Errorf("%d tokens were refused, want %d", n, expect)
	}
	if n := effects.Load(); n != 10 {
		t.Errorf("10 requests had %d effects", n)
	}
	s.unchanged(ctx, active, want)
	s.unchanged(ctx, other(active), left)
	cancel()
	for _, p := range []*process{pa, pb} {
		p.kill()
	}
}

// forget takes an item's records out.
func forget(held map[string]string, name string) {
	delete(held, "items1/"+record.StringKey(name).String())
	delete(held, "items2/"+record.StringKey(name).String())
	for i := range 8 {
		delete(held, "parts2/"+record.StringKey(fmt.Sprintf("%s/%d", name, i)).String())
	}
}
