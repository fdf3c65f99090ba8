package vrunner_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

func (a *announced) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.said)
}

// TestUsage is announced, at most every 30 s however much there is, and keeps no hold
// from being acknowledged at once.
func TestUsage(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		s, a := &service{}, &announced{}
		var calls atomic.Int64
		since := time.Now()
		usage := func() (time.Time, map[string]upgradestate.Usage) {
			return since, map[string]upgradestate.Usage{"v1": {Calls: calls.Load()}, "v2": {}}
		}
		start(ctx, consumer{w.store, a}, w.clients(), s.stacks(nil, nil), vrunner.Config{Usage: usage}, nil)
		if said := a.last(); said.Since != since.UTC().Format(time.RFC3339) || len(said.Used) != 2 {
			t.Errorf("announced %+v", said)
		}
		before := a.count()
		for range 600 {
			calls.Add(1)
			<-time.After(time.Second)
		}
		synctest.Wait()
		if n := a.count() - before; n < 19 || n > 20 {
			t.Errorf("announced %d times in 10 minutes", n)
		}
		if said := a.last(); said.Used["v1"].Calls < 570 {
			t.Errorf("announced %+v", said)
		}
		before = a.count()
		<-time.After(time.Hour)
		if n := a.count() - before; n > 1 {
			t.Errorf("announced %d times in an hour without calls", n)
		}
		calls.Add(1)
		w.begin(ctx)
		start := time.Now()
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		if said := a.last(); said.AckID != "u1" || time.Since(start) != 0 {
			t.Errorf("after %s: %+v", time.Since(start), said)
		}
		<-time.After(time.Minute)
		if said := a.last(); said.AckID != "u1" {
			t.Errorf("the acknowledgement was taken back: %+v", said)
		}
		w.until(ctx, open("v2"))
		<-time.After(31 * time.Second)
		if said := a.last(); said.Active != "v2" || said.Used["v1"].Calls != 601 {
			t.Errorf("announced %+v", said)
		}
	})
}

// TestTooManyBytesHeld: the bodies that are kept are bounded, whatever their number.
func TestTooManyBytesHeld(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{MaxHeldBytes: 100}, func(ctx context.Context, w *world, _ *service, r *vrunner.Runner, _ *announced) {
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		a, b := send(ctx, r, put("a", strings.Repeat("x", 60))), send(ctx, r, put("b", strings.Repeat("x", 40)))
		res := expect(t, "one byte more", send(ctx, r, connectJSON(put("c", "x"))), http.StatusServiceUnavailable, "")
		if code(t, res.Body.Bytes()) != "unavailable" || res.Header().Get("Retry-After") == "" {
			t.Errorf("%v %s", res.Header(), res.Body)
		}
		w.until(ctx, open("v2"))
		expect(t, "the first", a, http.StatusOK, "v2")
		expect(t, "the second", b, http.StatusOK, "v2")
		w.apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v1", TransformHash: "h"}})
		w.apply(ctx, upgradestate.Begin{ID: "u2", TargetVersion: "v1"})
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		again := send(ctx, r, put("d", strings.Repeat("x", 100)))
		expectNone(t, "what the others had is free", again)
		w.until(ctx, open("v1"))
		expect(t, "the last", again, http.StatusOK, "v1")
	})
}
