package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// A moment is a place in an upgrade at which something happens to the controller that is
// there first: "load 5" and "apply 5" are before its n-th copy and its n-th application
// of changes, "fence v1" is before, and "fenced v1" after the n-th rename of a kind of a
// version, "drop v1" and "dropped v1" of a drop, "to DRAIN" is before a record is stored that is in a step, "at DRAIN" after it,
// and "flipped" after the record that flips was stored ("flipped v1": on the rollback).
type moment struct {
	what string
	n    int // 0 is the first
}

func (m moment) String() string { return fmt.Sprintf("%s %d", m.what, m.n) }

// trap calls spring once, at its moment, in the goroutine that is there.
type trap struct {
	moment moment
	spring func(p *process)
	// passes lets what was caught go on: it is not lost.
	passes bool

	mu     sync.Mutex
	seen   int
	sprung bool
}

// arm sets the moment of a trap that runs already.
func (t *trap) arm(m moment, spring func(p *process)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moment, t.spring, t.seen = m, spring, 0
}

// pass reports whether the process has just been caught, and what it was about to do is lost.
func (t *trap) pass(p *process, what string) bool {
	t.mu.Lock()
	hit := !t.sprung && what == t.moment.what
	if hit {
		t.seen++
		hit = t.seen > t.moment.n
		t.sprung = hit
	}
	t.mu.Unlock()
	if hit {
		t.spring(p)
	}
	return hit && !t.passes
}

// errDead is what a process that was killed gets from its database, if it still asks.
var errDead = errors.New("the process is dead")

// wrap is for system.controllerProcess.
func (t *trap) wrap(p *process, version string, ns record.Namespace) record.Namespace {
	p.conn.OnCommit(func(_ []coord.Condition, ops []coord.Op) memcoord.Fault {
		for _, op := range ops {
			var d upgradestate.Deployment
			if !strings.HasSuffix(op.Key, "/record") || json.Unmarshal(op.Value, &d) != nil {
				continue
			}
			if d.Upgrade != nil && t.pass(p, "to "+string(d.Upgrade.Step)) {
				return memcoord.LoseRequest
			}
			if d.Upgrade != nil && t.pass(p, "at "+string(d.Upgrade.Step)) {
				return memcoord.LoseAnswer
			}
			if last := d.LastSwitch; last != nil && last.To == "v1" && d.CurrentVersion == "v1" && d.Upgrade == nil {
				if t.pass(p, "flip v1") {
					return memcoord.LoseRequest
				}
				if t.pass(p, "flipped v1") {
					return memcoord.LoseAnswer
				}
			}
			if d.CurrentVersion == "v2" && d.LastSwitch != nil && d.Upgrade == nil {
				if t.pass(p, "flip") {
					return memcoord.LoseRequest
				}
				if t.pass(p, "flipped") {
					return memcoord.LoseAnswer
				}
			}
		}
		return memcoord.Deliver
	})
	return trapped{ns, version, p, t}
}

type trapped struct {
	record.Namespace
	version string
	p       *process
	t       *trap
}

func (n trapped) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if n.t.pass(n.p, "load") {
		return nil, errDead
	}
	return n.Namespace.Load(ctx, b)
}

func (n trapped) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if n.t.pass(n.p, "apply") {
		return nil, errDead
	}
	res, err := n.Namespace.Apply(ctx, b)
	if n.t.pass(n.p, "applied") {
		return nil, errDead
	}
	return res, err
}

func (n trapped) Fence(ctx context.Context, f record.Fence) error {
	if n.t.pass(n.p, "fence "+n.version) {
		return errDead
	}
	err := n.Namespace.Fence(ctx, f)
	if err == nil && n.t.pass(n.p, "fenced "+n.version) {
		return errDead
	}
	return err
}

// die ends a process from within: it neither stores nor says anything any longer.
func (p *process) die() {
	p.conn.Cut()
	p.stop()
}

func (n trapped) Drop(ctx context.Context, tok record.Token) error {
	if n.t.pass(n.p, "drop "+n.version) {
		return errDead
	}
	err := n.Namespace.Drop(ctx, tok)
	if err == nil && n.t.pass(n.p, "dropped "+n.version) {
		return errDead
	}
	return err
}

var moments = []moment{
	{"load", 0}, {"load", 4}, {"load", 8}, {"apply", 3}, {"applied", 10}, {"apply", 40},
	{"to HOLD", 0}, {"to FENCE", 0}, {"fence v1", 0}, {"fenced v1", 0}, {"to DRAIN", 0},
	{"fence v2", 0}, {"fenced v2", 0}, {"fenced v2", 1}, // of the loaders
	{"to SEAL_TARGET", 0}, {"fence v2", 2}, {"fenced v2", 2}, {"fenced v2", 3}, {"to SEAL_SOURCE", 0},
	{"fence v1", 1}, {"fenced v1", 1}, {"flip", 0}, {"flipped", 0},
}

// TestKillController kills the controller that comes first to a moment, with or without
// another one next to it. The upgrade goes on by itself once it, or the other one, is
// there again; nothing is lost, and what was copied is not copied again.
func TestKillController(t *testing.T) {
	for i, m := range cases(moments) {
		for _, controllers := range turns(i, 1, 2) {
			t.Run(fmt.Sprintf("%s/%d controllers", m, controllers), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { killOne(t, newSystem, uint64(i), m, controllers) })
			})
		}
	}
}

func killOne(t *testing.T, made founding, seed uint64, m moment, controllers int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := made(ctx, t)
	s.maxRate = 60
	a, pa := s.server(ctx, "server-a", nil)
	b, pb := s.server(ctx, "server-b", nil)
	tr := newTraffic(t, a, b)
	tr.lenient = s.forgets // a switch that loses the history is aborted at its deadline
	const writers, keys = 3, 40
	stop := drive(ctx, tr, seed, writers, keys, 20*time.Millisecond)
	pass(3 * time.Second)
	tp, died := mortal(m)
	running := s.started(ctx, "controller", controllers, tp)
	s.begin(ctx)
	p := soon(t, died)
	killed := time.Now()
	<-p.done
	for id, r := range running {
		if r == p {
			pass(2 * time.Second)
			running[id] = s.controllerProcess(ctx, id, tp.wrap)
		}
	}
	d := s.await(ctx, "the flip", func(d upgradestate.Deployment) bool { return d.CurrentVersion == "v2" || d.Upgrade == nil })
	if d.CurrentVersion != "v2" {
		t.Errorf("the upgrade was aborted")
	}
	took := time.Since(killed)
	pass(time.Second)
	stop()
	tr.settle(ctx, s)
	// A controller loses the pages that were under way and half a second of work.
	if n := s.loads.Load(); !s.forgets && n > writers*keys+2*2*7+30 {
		t.Errorf("%d groups were copied, there are %d at most", n, writers*keys)
	}
	t.Logf("seed %d: flip %s after the kill, longest write %s, %d groups copied", seed, took, tr.pauseOf, s.loads.Load())
	cancel()
	for _, p := range running {
		p.kill()
	}
	pa.kill()
	pb.kill()
}

// pass lets simulated time go by.
func pass(d time.Duration) { <-time.After(d) }
