package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/upgradestate"
)

// endpoint is where events are sent to. It survives controllers.
type endpoint struct {
	mu     sync.Mutex
	got    []hooks.Event
	spring func(e hooks.Event, nth int) error // before an event counts as taken; nil: takes all
}

func (p *endpoint) Send(ctx context.Context, e hooks.Event, body []byte) error {
	var sent hooks.Event
	if err := json.Unmarshal(body, &sent); err != nil || sent.ID != e.ID {
		return fmt.Errorf("body %s: %w", body, err)
	}
	p.mu.Lock()
	p.got = append(p.got, e)
	nth, spring := len(p.got), p.spring
	p.mu.Unlock()
	if spring != nil {
		return spring(e, nth)
	}
	return nil
}

// events are those that it was sent, each once, in the order in which they came first. An
// event that comes again must be the same.
func (p *endpoint) events(t *testing.T) (all []hooks.Type, sent int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := map[string]int64{}
	last := int64(0)
	for _, e := range p.got {
		if seq, known := ids[e.ID]; known {
			if seq != e.Sequence {
				t.Errorf("two events have the id %s", e.ID)
			}
			continue
		}
		if e.Sequence <= last {
			t.Errorf("%s (%d) comes after %d", e.Type, e.Sequence, last)
		}
		last, ids[e.ID] = e.Sequence, e.Sequence
		all = append(all, e.Type)
	}
	return all, len(p.got)
}

func (p *endpoint) hook(name string, only ...hooks.Type) hooks.Hook {
	return hooks.Hook{Name: name, Events: only, Timeout: 10 * time.Second, GiveUp: time.Hour, Sender: p}
}

// forget has an endpoint begin anew, and take all.
func (p *endpoint) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got, p.spring = nil, nil
}

// hang is a Sender that never answers.
type hang struct{}

func (hang) Send(ctx context.Context, _ hooks.Event, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestHooksOfAnUpgrade: there and back, with a hook that takes all, one that wants some, one
// that fails three times each, and one that hangs. The switch waits for none of them.
func TestHooksOfAnUpgrade(t *testing.T) {
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		s.quiet()
		good, picky, flaky := &endpoint{}, &endpoint{}, &endpoint{}
		tries := map[string]int{}
		flaky.spring = func(e hooks.Event, _ int) error {
			if tries[e.ID]++; tries[e.ID] <= 3 {
				return errors.New("not now")
			}
			return nil
		}
		s.hooks = []hooks.Hook{{Name: "hangs", Timeout: time.Minute, GiveUp: 15 * time.Minute, Sender: hang{}}, good.hook("good"), picky.hook("picky", hooks.Switched, hooks.Aborted), flaky.hook("flaky")}
		r, server := s.server(ctx, "server-a", nil)
		c := s.controller(ctx, "controller-1", nil)
		pass(10 * time.Second)
		s.begin(ctx)
		start := time.Now()
		d := s.await(ctx, "the flip", active("v2"))
		if took := time.Since(start); took > time.Minute {
			t.Errorf("the switch took %s", took)
		}
		pass(time.Minute)
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "held", TargetVersion: "v1", Policy: upgradestate.Policy{Hold: true}})
		s.check(err)
		s.await(ctx, "ready", ready)
		_, err = s.admin.Apply(ctx, upgradestate.Abort{Reason: "a test"})
		s.check(err)
		pass(10 * time.Minute)
		want := []hooks.Type{hooks.Begin, hooks.Ready, hooks.Switched, hooks.Begin, hooks.Ready, hooks.Aborted}
		for name, p := range map[string]*endpoint{"good": good, "flaky": flaky} {
			got, sent := p.events(t)
			if !slices.Equal(got, want) || sent != len(want)*map[string]int{"good": 1, "flaky": 4}[name] {
				t.Errorf("%s got %v by %d requests, want %v", name, got, sent, want)
			}
		}
		if got, _ := picky.events(t); !slices.Equal(got, []hooks.Type{hooks.Switched, hooks.Aborted}) {
			t.Errorf("picky got %v", got)
		}
		if e := good.got[2]; e.Upgrade != "upgrade-1" || e.From != "v1" || e.To != "v2" || e.Version != "v2" || e.Rollback || len(e.Millis) != len(d.LastSwitch.Millis) {
			t.Errorf("switched: %+v", e)
		}
		if e := good.got[5]; e.Detail != "a test" || e.Upgrade != "held" {
			t.Errorf("aborted: %+v", e)
		}
		pass(30 * time.Minute)
		for _, m := range []struct {
			metric string
			want   float64
		}{{"hook_undelivered_events hangs", 0}, {"hook_given_up_total hangs", 6}, {"hook_delivered_total flaky", 6}, {"hook_failures_total flaky", 18}} {
			if got := scrape(t, exported{}, c.app.Metrics())["dbcontroller_"+m.metric]; got != m.want {
				t.Errorf("%s is %v, want %v", m.metric, got, m.want)
			}
		}
		state, _, err := s.admin.LoadHooks(ctx)
		if err != nil || len(state.Queue) > 0 {
			t.Errorf("%d events are kept, %v", len(state.Queue), err)
		}
		if !r.GateOpen() {
			t.Error("the gate is closed")
		}
		c.kill()
		server.kill()
	})
}

// TestHooksOutliveControllers: controllers are killed while they tell of events, before and
// after an event has arrived; the next leader tells what is missing, under the same id, and
// nothing twice that was noted.
func TestHooksOutliveControllers(t *testing.T) {
	for _, nth := range []int{1, 2, 3} {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/arrives %t", nth, arrives), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { killedTelling(t, nth, arrives) })
			})
		}
	}
}

func killedTelling(t *testing.T, nth int, arrives bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	p := &endpoint{}
	s.hooks = []hooks.Hook{p.hook("pager")}
	_, server := s.server(ctx, "server-a", nil)
	leads := s.controller(ctx, "controller-1", nil)
	pass(5 * time.Second)
	next := s.controller(ctx, "controller-2", nil)
	pass(5 * time.Second)
	p.spring = func(_ hooks.Event, n int) error {
		if n != nth {
			return nil
		}
		leads.conn.Cut() // as SIGKILL does: what it does from here on is not noted
		go leads.stop()
		if arrives {
			return nil
		}
		return errors.New("no answer")
	}
	s.begin(ctx)
	s.await(ctx, "the flip", active("v2"))
	pass(time.Minute)
	got, sent := p.events(t)
	if want := []hooks.Type{hooks.Begin, hooks.Ready, hooks.Switched}; !slices.Equal(got, want) || sent != len(want)+1 {
		t.Errorf("got %v by %d requests, want %v by one more", got, sent, want)
	}
	<-leads.done

	// A third one has nothing to tell, and neither has one that was away for a switch back.
	p.forget()
	last := s.controller(ctx, "controller-3", nil)
	pass(5 * time.Second)
	next.kill()
	pass(time.Minute)
	if got, _ := p.events(t); len(got) > 0 {
		t.Errorf("a takeover tells %v again", got)
	}
	_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "back", TargetVersion: "v1"})
	s.check(err)
	s.await(ctx, "the rollback", active("v1"))
	pass(time.Minute)
	if got, _ := p.events(t); !slices.Equal(got, []hooks.Type{hooks.Begin, hooks.Ready, hooks.Switched}) || !p.got[2].Rollback {
		t.Errorf("the rollback tells %v", got)
	}
	last.kill()
	server.kill()
}

// TestHooksWithoutAController: what happens while none is there is told by the next one.
func TestHooksWithoutAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		s.quiet()
		p := &endpoint{}
		s.hooks = []hooks.Hook{p.hook("pager")}
		_, server := s.server(ctx, "server-a", nil)
		c := s.controller(ctx, "controller-1", nil)
		pass(5 * time.Second)
		s.begin(ctx)
		s.await(ctx, "the reverse sync", func(d upgradestate.Deployment) bool { return active("v2")(d) && upgradestate.ReverseSynced(d) })
		c.kill()
		// Meanwhile, and without a controller, somebody begins and gives up.
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "held", TargetVersion: "v1", Policy: upgradestate.Policy{Hold: true}})
		s.check(err)
		_, err = s.admin.Apply(ctx, upgradestate.Abort{Reason: "a test"})
		s.check(err)
		pass(time.Minute)
		c = s.controller(ctx, "controller-2", nil)
		pass(time.Minute)
		want := []hooks.Type{hooks.Begin, hooks.Ready, hooks.Switched, hooks.Begin, hooks.Aborted}
		if got, _ := p.events(t); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		c.kill()
		server.kill()
	})
}

// TestHooksAreNewAndGone: a hook that is new is told what happens from then on; once there is
// none nothing is kept.
func TestHooksAreNewAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newSystem(ctx, t)
		s.quiet()
		_, server := s.server(ctx, "server-a", nil)
		first, second := &endpoint{}, &endpoint{}
		with := func(id string, hs ...hooks.Hook) *process {
			s.hooks = hs
			c := s.controller(ctx, id, nil)
			pass(20 * time.Second)
			return c
		}
		c := with("controller-1")
		s.begin(ctx)
		s.await(ctx, "the flip", active("v2"))
		c.kill()
		c = with("controller-2", first.hook("first"))
		if got, _ := first.events(t); len(got) > 0 {
			t.Errorf("a new hook is told of %v", got)
		}
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "held", TargetVersion: "v1", Policy: upgradestate.Policy{Hold: true}})
		s.check(err)
		pass(time.Minute)
		c.kill()
		c = with("controller-3", first.hook("first"), second.hook("second"))
		_, err = s.admin.Apply(ctx, upgradestate.Abort{})
		s.check(err)
		pass(time.Minute)
		if got, _ := first.events(t); !slices.Equal(got, []hooks.Type{hooks.Begin, hooks.Ready, hooks.Aborted}) {
			t.Errorf("the first is told of %v", got)
		}
		if got, _ := second.events(t); !slices.Equal(got, []hooks.Type{hooks.Aborted}) {
			t.Errorf("the second is told of %v", got)
		}
		c.kill()
		c = with("controller-4")
		if _, revision, err := s.admin.LoadHooks(ctx); revision != 0 || err != nil {
			t.Errorf("revision %d is kept, %v", revision, err)
		}
		c.kill()
		server.kill()
	})
}
