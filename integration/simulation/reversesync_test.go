package simulation_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/upgradestate"
)

func other(version string) string {
	if version == "v1" {
		return "v2"
	}
	return "v1"
}

// switchTo begins a switch and waits for its end, again if it was aborted.
func (s *system) switchTo(ctx context.Context, to string) upgradestate.Deployment {
	s.t.Helper()
	for {
		s.beginTo(ctx, to)
		if d := s.await(ctx, "the end of the switch to "+to, func(d upgradestate.Deployment) bool { return d.Upgrade == nil }); d.CurrentVersion == to {
			return d
		}
	}
}

func (s *system) beginTo(ctx context.Context, to string) {
	s.t.Helper()
	s.begun++
	dir := must(s.registry.Direction(other(to), to))
	_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: fmt.Sprintf("upgrade-%d", s.begun), TargetVersion: to, TransformHash: dir.Hash()})
	s.check(err)
}

var backMoments = []moment{
	{"apply", 3}, {"applied", 10}, {"to HOLD", 0}, {"fence v2", 0}, {"fenced v2", 0}, {"to DRAIN", 0},
	{"to SEAL_TARGET", 0}, {"fenced v1", 0}, {"to SEAL_SOURCE", 0}, {"fence v2", 1}, {"fenced v2", 1},
}

// TestKillOnTheReverseSync kills the controller that comes first to a moment after the flip,
// under traffic: of the reverse sync, or of the switch back, which is then finished, or
// aborted and begun again. The controllers come late: v2 was written to since the flip. Then the service goes forward, back, and forward again.
func TestKillOnTheReverseSync(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases(backMoments) {
		for _, aborts := range turns(i, false, true) {
			t.Run(fmt.Sprintf("%s/abort %t", m, aborts), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { killBack(t, newSystem, uint64(i), m, aborts) })
			})
		}
	}
}

func killBack(t *testing.T, made founding, seed uint64, m moment, aborts bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := made(ctx, t)
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	tr.lenient = true // an abort may come to a halt until the next controller
	stop := drive(ctx, tr, seed, 3, 20, 15*time.Millisecond)
	pass(time.Second)
	forward := s.controller(ctx, "forward", nil)
	s.switchTo(ctx, "v2")
	forward.kill()
	pass(time.Second) // nobody follows
	tp, died := mortal(m)
	running := s.started(ctx, "controller", 2, tp)
	pass(5 * time.Second)
	s.beginTo(ctx, "v1")
	p := soon(t, died)
	<-p.done
	if aborts {
		_, err := s.admin.Apply(ctx, upgradestate.Abort{Reason: "test"})
		s.check(err)
	}
	for id, r := range running {
		if r == p {
			running[id] = s.controllerProcess(ctx, id, tp.wrap)
		}
	}
	d := s.await(ctx, "the end", func(d upgradestate.Deployment) bool { return d.Upgrade == nil })
	if d.CurrentVersion == "v2" {
		pass(time.Second)
		s.switchTo(ctx, "v1")
	}
	for _, to := range []string{"v2", "v1", "v2"} {
		pass(time.Second)
		if d := s.switchTo(ctx, to); d.LastSwitch.Position == "" {
			t.Error("the position for the reverse sync is not known")
		}
	}
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	cancel()
	for _, p := range running {
		p.kill()
	}
	pa.kill()
}
