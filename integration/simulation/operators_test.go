package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/upgradestate"
)

// past is every state that the record was in.
type past struct {
	mu      sync.Mutex
	records []upgradestate.Deployment // in the order of their revisions
}

// follow notes each state until ctx ends.
func (p *past) follow(ctx context.Context, s *system) {
	key := s.admin.Root() + "/record"
	kvs, _, w, err := s.coord.Follow(ctx, key)
	s.check(err)
	p.add(s, kvs[0])
	go func() {
		defer w.Close()
		for {
			events, err := w.Next(ctx)
			if err != nil {
				return
			}
			for _, e := range events {
				p.add(s, e.KV)
			}
		}
	}()
}

func (p *past) add(s *system, kv coord.KV) {
	var d upgradestate.Deployment
	if err := json.Unmarshal(kv.Value, &d); err != nil {
		s.t.Error(err)
		return
	}
	d.Revision = kv.Mod
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, d)
}

func (p *past) latest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[len(p.records)-1].Revision
}

// between are the states that the record was in from one revision to another.
func (p *past) between(from, to int64) []upgradestate.Deployment {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []upgradestate.Deployment
	for i, d := range p.records {
		ends := int64(1<<62 - 1)
		if i+1 < len(p.records) {
			ends = p.records[i+1].Revision
		}
		if ends > from && d.Revision <= to {
			out = append(out, d)
		}
	}
	return out
}

// verb is something that an operator asks for, and the event of the machine that it is.
type verb struct {
	name string
	call func(ctx context.Context, o *operator) (*dbv1.Deployment, error)
	// event is what the machine is asked for at a record. An id that is made anew is that in
	// the record after it.
	event func(d, then upgradestate.Deployment) upgradestate.Event
	// own reports that the API itself refuses it, by a rule of its own.
	own func(upgradestate.Deployment) bool
}

func ask[Req any](m *Req, f func(context.Context, *connect.Request[Req]) (*connect.Response[dbv1.Deployment], error)) func(context.Context) (*dbv1.Deployment, error) {
	return func(ctx context.Context) (*dbv1.Deployment, error) {
		res, err := f(ctx, connect.NewRequest(m))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
}

// drawVerb thinks of something to ask for.
func (s *system) drawVerb(rng *rand.Rand) verb {
	yes, no := true, false
	never := func(upgradestate.Deployment) bool { return false }
	idle := func(d upgradestate.Deployment) bool { return d.Upgrade == nil }
	flag := rng.IntN(2) == 0
	switch rng.IntN(10) {
	case 0, 1, 2:
		to := []string{"v1", "v2"}[rng.IntN(2)]
		policy := upgradestate.Policy{Hold: flag}
		hash := must(s.registry.Direction(other(to), to)).Hash()
		req := &dbv1.BeginUpgradeRequest{TargetVersion: to, Policy: &dbv1.SwitchPolicy{Hold: flag}}
		return verb{fmt.Sprintf("begin %s hold %t", to, flag), func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(req, o.api.BeginUpgrade)(ctx)
		}, func(_, then upgradestate.Deployment) upgradestate.Event {
			return upgradestate.Begin{ID: newUpgrade(then), TargetVersion: to, TransformHash: hash, Policy: policy}
		}, func(d upgradestate.Deployment) bool {
			return d.Upgrade == nil // servers, offers, and the rollback are looked at first
		}}
	case 3:
		return verb{"abort", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.AbortUpgradeRequest{}, o.api.AbortUpgrade)(ctx)
		}, func(_, _ upgradestate.Deployment) upgradestate.Event {
			return upgradestate.Abort{Reason: "requested by an operator"}
		}, idle}
	case 4:
		return verb{"switch", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.SwitchRequest{}, o.api.Switch)(ctx)
		}, func(d, _ upgradestate.Deployment) upgradestate.Event {
			if d.Upgrade == nil && d.LastSwitch != nil {
				return upgradestate.AskSwitch{ID: d.LastSwitch.ID} // asked for again, after the flip
			}
			return upgradestate.AskSwitch{}
		}, idle}
	case 5:
		return verb{fmt.Sprintf("set-policy hold %t", flag), func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.SetPolicyRequest{Hold: &flag}, o.api.SetPolicy)(ctx)
		}, func(_, _ upgradestate.Deployment) upgradestate.Event { return upgradestate.SetPolicy{Hold: &flag} }, idle}
	case 6:
		return verb{"pause", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.SetPaceRequest{Paused: &yes}, o.api.SetPace)(ctx)
		}, func(_, _ upgradestate.Deployment) upgradestate.Event { return upgradestate.SetPace{Paused: &yes} }, never}
	case 7:
		task := []string{"tidy1", "tidy2"}[rng.IntN(2)]
		u := must(tasks{}.Task(task))
		return verb{"update " + task, func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.BeginUpdateRequest{Task: task}, o.api.BeginUpdate)(ctx)
		}, func(_, then upgradestate.Deployment) upgradestate.Event {
			asked := u
			if asked.ID = "new"; then.Update != nil {
				asked.ID = then.Update.ID
			}
			return upgradestate.BeginUpdate{Update: asked}
		}, never}
	case 8:
		return verb{"cancel-update", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.CancelUpdateRequest{}, o.api.CancelUpdate)(ctx)
		}, func(_, _ upgradestate.Deployment) upgradestate.Event { return upgradestate.CancelUpdate{} },
			func(d upgradestate.Deployment) bool { return d.Update == nil }}
	default:
		return verb{"resume", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.SetPaceRequest{Paused: &no}, o.api.SetPace)(ctx)
		}, func(_, _ upgradestate.Deployment) upgradestate.Event { return upgradestate.SetPace{Paused: &no} }, never}
	}
}

// drawLast thinks of something to ask for at the end of v1's life, when no controller runs.
func (s *system) drawLast(rng *rand.Rand) verb {
	never := func(upgradestate.Deployment) bool { return false }
	idle := func(d upgradestate.Deployment) bool { return d.Upgrade == nil }
	switch rng.IntN(12) {
	case 0, 1, 2:
		hash := must(s.registry.Direction("v2", "v1")).Hash()
		return verb{"begin v1", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.BeginUpgradeRequest{TargetVersion: "v1"}, o.api.BeginUpgrade)(ctx)
		}, func(_, then upgradestate.Deployment) upgradestate.Event {
			return upgradestate.Begin{ID: newUpgrade(then), TargetVersion: "v1", TransformHash: hash}
		}, idle}
	case 3, 4, 5, 6:
		return verb{"abort", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			return ask(&dbv1.AbortUpgradeRequest{}, o.api.AbortUpgrade)(ctx)
		}, func(_, _ upgradestate.Deployment) upgradestate.Event { return upgradestate.Abort{} }, idle}
	case 7, 8, 9:
		return verb{"complete", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			d, err := s.admin.Get(ctx)
			if err != nil {
				return nil, err
			}
			confirm, _ := api.Confirmation(d, "v1")
			return ask(&dbv1.CompleteRequest{Version: "v1", Confirm: confirm, IgnoreUsage: true}, o.api.Complete)(ctx)
		}, func(_, _ upgradestate.Deployment) upgradestate.Event { return upgradestate.Complete{Version: "v1"} }, never}
	default: // by a controller, which may be late
		return verb{"dropped", func(ctx context.Context, o *operator) (*dbv1.Deployment, error) {
			_, err := o.own.Apply(ctx, upgradestate.Dropped{Version: "v1"})
			return nil, err
		}, func(_, _ upgradestate.Deployment) upgradestate.Event { return upgradestate.Dropped{Version: "v1"} }, never}
	}
}

// newUpgrade is the id of an upgrade that may have begun in a record.
func newUpgrade(then upgradestate.Deployment) string {
	if then.Upgrade == nil {
		return "new"
	}
	return then.Upgrade.ID
}

// tasks are data updates, one for each version.
type tasks struct{}

func (tasks) Tasks() []*dbv1.ListUpdatesResponse_Task { return nil }

func (tasks) Task(name string) (upgradestate.Update, error) {
	n := strings.TrimPrefix(name, "tidy")
	return upgradestate.Update{Name: name, Version: "v" + n, Kind: "items" + n, Hash: "h"}, nil
}

// work reports the shards of data updates done, one after the other, as controllers do,
// until ctx ends; done is closed then.
func work(ctx context.Context, s *system) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			pass(100 * time.Millisecond)
			d, err := s.admin.Get(ctx)
			if err == nil && d.Update != nil {
				// What ends meanwhile is outdated.
				_, _ = s.admin.Apply(ctx, upgradestate.UpdateDone{ID: d.Update.ID, Shard: len(d.Update.Done), Count: upgradestate.UpdateCount{Seen: 1}})
			}
		}
	}()
	return ended
}

// asked is a verb that was answered.
type asked struct {
	verb
	from, to int64 // revisions of the record before and after
	answer   *dbv1.Deployment
	err      error
}

// explains reports whether the machine, asked at one of the states meanwhile, answers as
// the operator was answered. A grant left one of the states that followed.
func (a asked) explains(states []upgradestate.Deployment) bool {
	for i, d := range states {
		var then upgradestate.Deployment
		if i+1 < len(states) {
			then = states[i+1]
		}
		next, err := upgradestate.Apply(d, a.event(d, then))
		switch {
		case a.err != nil:
			if err != nil || a.own(d) {
				return true
			}
		case err != nil:
		case same(next, d):
			return true // there was nothing to do
		case i+1 < len(states) && same(next, states[i+1]):
			return true // and this was done
		}
	}
	return false
}

// same compares records but for what is told of them.
func same(a, b upgradestate.Deployment) bool {
	a.History, b.History, a.Revision, b.Revision = nil, nil, 0, 0
	return string(must(json.Marshal(a))) == string(must(json.Marshal(b)))
}

// operator asks for verbs at any time, half of them twice. Its requests and its answers
// are lost now and then.
type operator struct {
	s    *system
	past *past
	own  *deployment.Store
	api  *api.Service
	said []asked
}

func (s *system) operator(p *past, rng *rand.Rand) *operator {
	conn := s.coord.Client()
	var mu sync.Mutex
	conn.OnCommit(func([]coord.Condition, []coord.Op) memcoord.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch rng.IntN(6) {
		case 0:
			return memcoord.LoseRequest
		case 1:
			return memcoord.LoseAnswer
		}
		return memcoord.Deliver
	})
	own := deployment.New(conn, name, deployment.Config{})
	return &operator{s: s, past: p, own: own, api: api.New(conn, own, api.Config{Upgrades: hashes{s}, Updates: tasks{}})}
}

type hashes struct{ s *system }

func (h hashes) TransformHash(from, to string) (string, error) {
	dir, err := h.s.registry.Direction(from, to)
	if err != nil {
		return "", err
	}
	return dir.Hash(), nil
}

// run asks for verbs, with up to a time between them.
func (o *operator) run(ctx context.Context, rng *rand.Rand, verbs int, between time.Duration, draw func(*rand.Rand) verb) {
	for range verbs {
		v := draw(rng)
		for range 1 + rng.IntN(2) {
			a := asked{verb: v, from: o.past.latest()}
			a.answer, a.err = v.call(ctx, o)
			pass(time.Millisecond) // until the past has it
			a.to = o.past.latest()
			o.said = append(o.said, a)
		}
		pass(time.Duration(rng.Int64N(int64(between))))
	}
}

// TestTwoOperators: two operators ask for verbs at the same time, at any step of upgrades
// there and back, each also twice, with lost requests and answers, under traffic. Each is
// answered as the machine answers at one of the states that the record was in meanwhile;
// the service comes to rest, and nothing is lost.
func TestTwoOperators(t *testing.T) {
	total := &tally{granted: map[string]int{}}
	t.Cleanup(func() {
		if raced.On {
			return // some seeds grant only some of them
		}
		for _, v := range []string{"begin", "abort", "switch", "set-policy", "pause", "resume", "update", "cancel-update", "complete", "dropped"} {
			if total.granted[v] == 0 {
				t.Errorf("%s was never granted", v)
			}
		}
		if total.refused == 0 {
			t.Error("nothing was ever refused")
		}
	})
	for seed := range seeds(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { twoOperators(t, seed, total) })
		})
	}
}

// tally counts answers over all runs.
type tally struct {
	mu      sync.Mutex
	granted map[string]int // by verb
	refused int
}

func (c *tally) add(granted map[string]int, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v, n := range granted {
		c.granted[v] += n
	}
	c.refused += refused
}

func twoOperators(t *testing.T, seed uint64, total *tally) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystem(ctx, t)
	s.quiet()
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 2, 20, 20*time.Millisecond)
	pass(time.Second)
	c1, c2 := s.controller(ctx, "controller-1", nil), s.controller(ctx, "controller-2", nil)
	worked := work(ctx, s)
	p := &past{}
	p.follow(ctx, s)
	var operators []*operator
	var wg sync.WaitGroup
	for i := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 100+i))
		o := s.operator(p, rand.New(rand.NewPCG(seed, 200+i)))
		operators = append(operators, o)
		wg.Go(func() { o.run(ctx, rng, 60, 1500*time.Millisecond, s.drawVerb) })
	}
	wg.Wait()

	judge(t, p, operators, total)

	// Whatever they left behind, one more operator brings it to rest.
	no, hold := false, false
	_, err := s.admin.Apply(ctx, upgradestate.SetPace{Paused: &no})
	s.check(err)
	if d, err := s.admin.Get(ctx); err == nil && d.Upgrade != nil && d.Upgrade.State == upgradestate.InitialSyncing {
		_, err = s.admin.Apply(ctx, upgradestate.SetPolicy{Hold: &hold})
		s.check(err)
	}
	d := s.await(ctx, "rest", rest)
	flips := d.Epoch - 1
	if d.CurrentVersion == "v1" {
		s.switchTo(ctx, "v2")
	}
	pass(time.Second)
	c1.kill()
	c2.kill()
	retire(ctx, t, s, p, operators, seed, total)
	stop()
	tr.settle(ctx, s)
	t.Logf("%d flips before the last one", flips)
	cancel()
	<-worked
	for _, p := range []*process{pa, c1, c2} {
		p.kill()
	}
}

// retire has the operators ask for the end of v1 and for the rollback to it: one of the two
// is refused, and in the end nothing leads to v1 any longer.
func retire(ctx context.Context, t *testing.T, s *system, p *past, operators []*operator, seed uint64, total *tally) {
	var wg sync.WaitGroup
	for i, o := range operators {
		o.said = nil
		rng := rand.New(rand.NewPCG(seed, 300+uint64(i)))
		wg.Go(func() { o.run(ctx, rng, 12, 20*time.Millisecond, s.drawLast) })
	}
	wg.Wait()
	judge(t, p, operators, total)
	for _, ev := range []upgradestate.Event{upgradestate.Abort{}, upgradestate.Complete{Version: "v1"}, upgradestate.Dropped{Version: "v1"}} {
		_, err := s.admin.Apply(ctx, ev)
		s.check(err)
	}
	_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "late", TargetVersion: "v1", TransformHash: must(s.registry.Direction("v2", "v1")).Hash()})
	if refused := new(upgradestate.RefusedError); !errors.As(err, &refused) {
		t.Errorf("an upgrade to what was retired: %v", err)
	}
}

// judge has the machine explain each answer.
func judge(t *testing.T, p *past, operators []*operator, total *tally) {
	t.Helper()
	granted, refusals := map[string]int{}, 0
	for i, o := range operators {
		for _, a := range o.said {
			states := p.between(a.from, a.to)
			what := fmt.Sprintf("operator %d: %s between revisions %d and %d", i, a.name, a.from, a.to)
			if !a.explains(states) {
				t.Errorf("%s: answered %v, which the machine does at none of %d states", what, a.err, len(states))
			}
			if a.err == nil {
				granted[strings.Fields(a.name)[0]]++
				continue
			}
			refusals++
			var ce *connect.Error
			if errors.As(a.err, &ce) && ce.Code() == connect.CodeInternal || strings.Contains(a.err.Error(), "\n") {
				t.Errorf("%s: not a clear line: %v", what, a.err)
			}
		}
	}
	total.add(granted, refusals)
	t.Logf("granted %v, %d refused", granted, refusals)
}
