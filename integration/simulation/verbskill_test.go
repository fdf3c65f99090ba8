package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/upgradestate"
)

// beginHeld begins an upgrade to v2 that holds at ready.
func (s *system) beginHeld(ctx context.Context) {
	s.t.Helper()
	s.begun++
	_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: fmt.Sprintf("upgrade-%d", s.begun), TargetVersion: "v2", Policy: upgradestate.Policy{Hold: true}})
	s.check(err)
}

// askSwitch asks once, or again, by a network that loses requests and answers.
func (s *system) askSwitch(ctx context.Context, o *operator) {
	s.t.Helper()
	_, err := o.api.Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{UpgradeId: fmt.Sprintf("upgrade-%d", s.begun)}))
	s.check(err)
}

// unasked fails the test if a switch has begun before now.
func (s *system) unasked(p *past) {
	s.t.Helper()
	pass(time.Millisecond)
	for _, d := range p.between(0, p.latest()) {
		if u := d.Upgrade; u != nil && u.State == upgradestate.Switching && !u.SwitchAsked {
			s.t.Errorf("upgrade %s switches without having been asked", u.ID)
		}
	}
}

func ready(d upgradestate.Deployment) bool { return upgradestate.AllReady(d) }

// TestHeldSwitch: an upgrade holds at ready, and is asked to switch before it is ready, or
// long after. The controller that comes first to a moment is killed, or the upgrade is
// aborted there. One that is killed goes on by itself; one that is aborted holds again when
// it is begun again. None switches unasked, and asking twice is the same as asking once.
func TestHeldSwitch(t *testing.T) {
	raced.Leave(t)
	for i, tc := range cases([]struct {
		moment        moment
		early, aborts bool
	}{
		{moment{"load", 4}, true, false}, {moment{"to ", 0}, true, false}, {moment{"to HOLD", 0}, true, false}, {moment{"at HOLD", 0}, true, false},
		{moment{"load", 4}, false, false}, {moment{"to ", 0}, false, false}, {moment{"to HOLD", 0}, false, false}, {moment{"at HOLD", 0}, false, false},
		{moment{"at FENCE", 0}, false, false}, {moment{"at DRAIN", 0}, false, false}, {moment{"at SEAL_TARGET", 0}, false, false},
		{moment{"at SEAL_SOURCE", 0}, false, false}, {moment{"flip", 0}, false, false}, {moment{"flipped", 0}, false, false},
		{moment{"load", 4}, true, true}, {moment{"to HOLD", 0}, true, true}, {moment{"flip", 0}, true, true},
		{moment{"to ", 0}, false, true}, {moment{"to HOLD", 0}, false, true}, {moment{"to FENCE", 0}, false, true}, {moment{"flip", 0}, false, true},
	}) {
		t.Run(fmt.Sprintf("%s/early %t/abort %t", tc.moment, tc.early, tc.aborts), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { heldSwitch(t, uint64(i), tc.moment, tc.early, tc.aborts) })
		})
	}
}

func heldSwitch(t *testing.T, seed uint64, m moment, early, aborts bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 3, 20, 15*time.Millisecond)
	pass(time.Second)
	p := &past{}
	p.follow(ctx, s)
	o := s.operator(p, rand.New(rand.NewPCG(seed, 300)))

	tp, died := mortal(m)
	aborted := make(chan error, 1)
	if aborts {
		// An answer that is lost would be looked for when the abort is under way.
		o.api = api.New(s.coord, s.admin, api.Config{Upgrades: hashes{s}})
		tp.spring = func(*process) {
			_, err := s.admin.Apply(ctx, upgradestate.Abort{Reason: "a test"})
			aborted <- err
		}
	}
	s.beginHeld(ctx)
	if early {
		s.askSwitch(ctx, o)
		s.askSwitch(ctx, o)
	}
	running := s.started(ctx, "controller", 2, tp)
	handled := false
	caught := func() {
		handled = true
		if aborts {
			s.check(soon(t, aborted))
			s.await(ctx, "the end of the abort", rest)
			s.beginHeld(ctx)
			early = false
			return
		}
		s.replace(ctx, running, died, tp)
	}
	before := m.what == "load" || m.what == "to "
	if before || early {
		caught()
	}
	if !early {
		d := s.await(ctx, "ready", ready)
		pass(3 * time.Second)
		if now, err := s.admin.Get(ctx); err != nil || now.Upgrade == nil || now.Upgrade.State != upgradestate.InitialSyncing {
			t.Errorf("it does not hold: %+v (%v); was %+v", now.Upgrade, err, d.Upgrade)
		}
		s.askSwitch(ctx, o)
		if !before && !handled {
			caught()
			if aborts {
				s.await(ctx, "ready", ready)
				pass(3 * time.Second)
				s.unasked(p)
				s.askSwitch(ctx, o)
			}
		}
	}
	s.await(ctx, "the flip", active("v2"))
	s.askSwitch(ctx, o) // again: it is done
	s.unasked(p)
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	cancel()
	for _, r := range running {
		r.kill()
	}
	pa.kill()
}

// TestPauseInTheCopy: bulk work is paused, and the controller killed that comes next to a
// moment of the copy; then the other one, too. A controller that runs copies nothing and begins no
// switch, until somebody resumes; then a third one goes on where they were.
func TestPauseInTheCopy(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases([]moment{{"load", 0}, {"load", 6}, {"load", 12}, {"apply", 5}, {"applied", 10}}) {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { pauseInCopy(t, uint64(i), m) })
		})
	}
}

func pauseInCopy(t *testing.T, seed uint64, m moment) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	s.maxRate = 30
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	const writers, keys = 3, 60
	stop := drive(ctx, tr, seed, writers, keys, 20*time.Millisecond)
	pass(4 * time.Second)
	yes, no := true, false
	tp, died := mortal(m)
	kill := tp.spring
	tp.spring = func(p *process) {
		for range 2 {
			_, err := s.admin.Apply(ctx, upgradestate.SetPace{Paused: &yes})
			s.check(err)
		}
		kill(p)
	}
	s.begin(ctx)
	running := s.started(ctx, "controller", 2, tp)
	s.replace(ctx, running, died, tp)
	pass(5 * time.Second) // pages that were under way
	copied := s.loads.Load()
	if copied >= writers*keys*3/4 {
		t.Fatalf("%d groups were copied before the pause, so nothing is left", copied)
	}
	const whole = 10 * time.Second // more than the rest of the copy takes at this rate
	pass(whole)
	for _, p := range running {
		p.kill()
	}
	last := s.controller(ctx, "last", nil)
	pass(whole)
	if n := s.loads.Load(); n != copied {
		t.Errorf("%d groups were copied while it was paused", n-copied)
	}
	d, err := s.admin.Get(ctx)
	s.check(err)
	if d.Upgrade == nil || upgradestate.AllReady(d) {
		t.Errorf("the upgrade is %+v", d.Upgrade)
	}
	for range 2 {
		_, err := s.admin.Apply(ctx, upgradestate.SetPace{Paused: &no})
		s.check(err)
	}
	s.await(ctx, "the flip", active("v2"))
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	// The pages that were under way at each kill, and half a second of work.
	if n := s.loads.Load(); n > writers*keys+3*(2*7+15) {
		t.Errorf("%d groups were copied, there are %d at most", n, writers*keys)
	}
	cancel()
	last.kill()
	pa.kill()
}

// TestPauseInTheSwitch: a pause that comes before SWITCHING holds it back until somebody
// resumes, one that comes later does not stop what has begun.
func TestPauseInTheSwitch(t *testing.T) {
	raced.Leave(t)
	for i, m := range cases([]moment{{"to HOLD", 0}, {"to FENCE", 0}, {"to DRAIN", 0}, {"to SEAL_SOURCE", 0}, {"flip", 0}}) {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSystem(ctx, t)
				s.quiet()
				a, pa := s.server(ctx, "server-a", nil)
				tr := newTraffic(t, a)
				stop := drive(ctx, tr, uint64(i), 3, 20, 15*time.Millisecond)
				pass(time.Second)
				yes, no := true, false
				paused := make(chan error, 1)
				tp := &trap{moment: m, spring: func(*process) {
					_, err := s.admin.Apply(ctx, upgradestate.SetPace{Paused: &yes})
					paused <- err
				}}
				s.begin(ctx)
				running := s.started(ctx, "controller", 2, tp)
				s.check(soon(t, paused))
				if m.what == "to HOLD" {
					pass(20 * time.Second)
					if d, err := s.admin.Get(ctx); err != nil || d.Upgrade == nil || d.Upgrade.State != upgradestate.InitialSyncing {
						t.Errorf("it was not held back: %+v, %v", d.Upgrade, err)
					}
					_, err := s.admin.Apply(ctx, upgradestate.SetPace{Paused: &no})
					s.check(err)
				}
				s.await(ctx, "the flip", active("v2"))
				pass(time.Second)
				stop()
				tr.settle(ctx, s)
				cancel()
				for _, p := range running {
					p.kill()
				}
				pa.kill()
			})
		})
	}
}
