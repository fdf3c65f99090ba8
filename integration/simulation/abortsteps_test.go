package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

var abortMoments = []moment{
	{"to HOLD", 0}, {"to FENCE", 0}, {"fence v1", 0}, {"fenced v1", 0}, {"to DRAIN", 0}, {"to SEAL_TARGET", 0},
	{"fence v2", 2}, {"fence v2", 3}, {"fenced v2", 2}, {"to SEAL_SOURCE", 0}, {"fence v1", 1}, {"fenced v1", 1}, {"flip", 0},
	{"fence v2", 0}, {"fenced v2", 1}, // of the loaders
}

// TestAbortAtEveryStep has an operator abort right when the driver is about to leave a
// step, so that its next record is outdated. Writes go on at once, and a second upgrade
// goes through.
func TestAbortAtEveryStep(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases(abortMoments) {
		for seed := range seeds(2) {
			t.Run(fmt.Sprintf("%s/%d", m, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { abortAt(t, newSystem, uint64(i)*100+seed, m) })
			})
		}
	}
}

// wasAborted reports whether the record says that an upgrade was aborted, and none runs. An abort can end
// in the write that asks for it, before its caller knows.
func wasAborted(d upgradestate.Deployment) bool {
	return d.Upgrade == nil && slices.ContainsFunc(d.History, func(e upgradestate.Entry) bool { return strings.HasPrefix(e.Outcome, "aborted") })
}

func abortAt(t *testing.T, made founding, seed uint64, m moment) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := made(ctx, t)
	a, pa := s.server(ctx, "server-a", nil)
	b, pb := s.server(ctx, "server-b", nil)
	tr := newTraffic(t, a, b)
	stop := drive(ctx, tr, seed, 3, 30, 20*time.Millisecond)
	pass(time.Second)
	tp := &trap{moment: m, spring: func(*process) {
		_, err := s.admin.Apply(ctx, upgradestate.Abort{ID: "upgrade-1", Reason: "a test"})
		s.check(err)
	}}
	// What was caught is a lost request or a failed act, and is tried again.
	c1 := s.controllerProcess(ctx, "controller-1", tp.wrap)
	c2 := s.controllerProcess(ctx, "controller-2", tp.wrap)
	s.begin(ctx)
	d := s.await(ctx, "the end of the abort", wasAborted)
	if d.CurrentVersion != "v1" {
		t.Fatalf("%s is active, the flip overtook the abort", d.CurrentVersion)
	}
	pass(100 * time.Millisecond)
	if !a.GateOpen() || !b.GateOpen() {
		t.Error("writes do not go on after the abort")
	}
	// A failed operation is tried again after some 20 ms; nothing else may take time.
	tr.mu.Lock()
	if tr.pauseOf > 200*time.Millisecond {
		t.Errorf("writes waited %s", tr.pauseOf)
	}
	tr.mu.Unlock()
	pass(time.Second)
	s.begin(ctx)
	s.await(ctx, "the flip of the second upgrade", active("v2"))
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	cancel()
	for _, p := range []*process{pa, pb, c1, c2} {
		p.kill()
	}
}

// stuck is a Namespace whose fences, or streams, do not answer until released.
type stuck struct {
	record.Namespace
	fences int64 // hangs from this fence on, counted from 1; 0 never
	seen   atomic.Int64
	stream bool
	hangs  *atomic.Bool
}

func (n *stuck) Fence(ctx context.Context, f record.Fence) error {
	if n.fences > 0 && n.seen.Add(1) >= n.fences && n.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return n.Namespace.Fence(ctx, f)
}

func (n *stuck) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	st, err := n.Namespace.Watch(ctx, from, kinds)
	if err != nil || !n.stream {
		return st, err
	}
	return stuckStream{st, n.hangs}, nil
}

// stuckStream says nothing of a fence.
type stuckStream struct {
	record.Stream
	hangs *atomic.Bool
}

func (s stuckStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	b, err := s.Stream.Next(ctx)
	for _, c := range b.Changes {
		for c.Marker != "" && s.hangs.Load() && ctx.Err() == nil {
			pass(10 * time.Millisecond)
		}
	}
	return b, err
}

// TestDeadlineAtEveryStep has SWITCHING stop in each of its steps until its deadline.
func TestDeadlineAtEveryStep(t *testing.T) {
	type where struct {
		step    string
		v1, v2  int64
		streams bool
	}
	for _, tc := range cases([]where{
		{step: "FENCE", v1: 1}, {step: "DRAIN", streams: true}, {step: "SEAL_TARGET", v2: 3},
		{step: "SEAL_TARGET, one kind of two", v2: 4}, {step: "SEAL_SOURCE", v1: 2},
	}) {
		for seed := range seeds(2) {
			t.Run(fmt.Sprintf("%s/%d", tc.step, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					s := newSystem(ctx, t)
					a, pa := s.server(ctx, "server-a", nil)
					tr := newTraffic(t, a)
					stop := drive(ctx, tr, seed, 3, 30, 20*time.Millisecond)
					pass(time.Second)
					hangs := &atomic.Bool{}
					hangs.Store(true)
					c := s.controller(ctx, "controller-1", func(version string, ns record.Namespace) record.Namespace {
						n := &stuck{Namespace: ns, hangs: hangs, fences: tc.v1, stream: tc.streams && version == "v1"}
						if version == "v2" {
							n.fences = tc.v2
						}
						return n
					})
					s.begin(ctx)
					s.await(ctx, "the switch", func(d upgradestate.Deployment) bool {
						return d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
					})
					start := time.Now()
					// No announced rename is waited for, neither of the source nor of the target, and
					// clients write while the driver waits with its next attempt.
					d := s.await(ctx, "the end of the attempt", func(d upgradestate.Deployment) bool {
						return d.Upgrade != nil && d.Upgrade.State == upgradestate.InitialSyncing && d.Upgrade.Failures == 1
					})
					if took := time.Since(start); took > 10500*time.Millisecond {
						t.Errorf("clients could write %s after the switch began, its deadline is 10 s", took)
					}
					pass(2 * time.Second)
					if d.CurrentVersion != "v1" || !a.GateOpen() {
						t.Fatalf("%s is active, open %t", d.CurrentVersion, a.GateOpen())
					}
					hangs.Store(false)
					s.await(ctx, "the flip of the second attempt", active("v2"))
					pass(time.Second)
					stop()
					tr.settle(ctx, s)
					cancel()
					pa.kill()
					c.kill()
				})
			})
		}
	}
}
