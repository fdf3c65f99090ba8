package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// loaders are what can go wrong with loads: they sleep with an image in their hand, over a
// delete, over the end of their lease, over the fence, over the flip; and they are killed in the
// middle of a group. One of the rules that make up for it may be broken.
type loaders struct {
	s      *system
	broken string

	mu     sync.Mutex
	rng    *rand.Rand
	kills  int // left
	pauses int // left
	died   chan *process
	still  atomic.Bool // nothing changes in the source any longer
}

func (l *loaders) wrap(p *process, version string, ns record.Namespace) record.Namespace {
	if version != "v2" {
		return ns
	}
	return &loader{ns, l, p}
}

// draw is what happens to one load: how long it sleeps before each of its writes, whether its
// process loses its leases meanwhile, and after how many writes it is killed; -1: it is not.
func (l *loaders) draw(writes int) (sleeps []time.Duration, pauses bool, dies int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sleeps, dies = make([]time.Duration, writes), -1
	if l.rng.IntN(2) == 0 {
		return sleeps, false, dies
	}
	if l.pauses > 0 && l.rng.IntN(3) == 0 {
		l.pauses--
		pauses = true
	}
	for range 1 + l.rng.IntN(2) {
		sleeps[l.rng.IntN(writes)] = time.Duration(l.rng.IntN(20_000)) * time.Millisecond
	}
	if l.kills > 0 && l.rng.IntN(3) == 0 {
		l.kills--
		dies = l.rng.IntN(writes)
	}
	return sleeps, pauses, dies
}

type loader struct {
	record.Namespace
	l *loaders
	p *process
}

// Load sends the writes one by one. A process that sleeps does not see that its work is over.
func (n *loader) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	ctx = context.WithoutCancel(ctx)
	results := make([]record.Result, len(b.Groups))
	var at []int // the group of each write
	for i, g := range b.Groups {
		results[i].Outcome = record.Applied
		for range g.Writes {
			at = append(at, i)
		}
	}
	sleeps, pauses, dies := n.l.draw(len(at))
	if pauses {
		n.p.conn.Pause()
		defer time.AfterFunc(8*time.Second, n.p.conn.Heal).Stop()
		defer n.p.conn.Heal()
	}
	done := map[int]int{}
	for i, g := range at {
		pass(sleeps[i])
		if i == dies {
			n.p.die()
			n.l.died <- n.p
			return nil, errDead
		}
		if n.l.broken == "no fence" {
			d, err := n.l.s.admin.Get(ctx)
			if err != nil {
				return nil, err
			}
			b.Tokens = syncer.Tokens(d, "v2")
		}
		one := b.Groups[g]
		one.Writes = one.Writes[done[g] : done[g]+1]
		one.Anchor = 0
		done[g]++
		res, err := n.Namespace.Load(ctx, record.Batch{Tokens: b.Tokens, Epoch: b.Epoch, Groups: []record.GroupWrite{one}})
		if err != nil {
			return nil, err
		}
		if res[0].Outcome != record.Applied {
			results[g] = res[0]
		}
	}
	return results, nil
}

func (n *loader) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	if n.l.broken == "nothing is repaired" && n.l.still.Load() {
		return slices.Repeat([]record.Result{{Outcome: record.Stale}}, len(b.Groups)), nil
	}
	return n.Namespace.Apply(ctx, b)
}

// Scan finds nothing of the target where nobody looks for strays.
func (n *loader) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	page, err := n.Namespace.Scan(ctx, req)
	if n.l.broken == "no search for strays" && req.KeysOnly {
		page.Records = nil
	}
	return page, err
}

// fixedItems is the service of the simulation with its new kinds under names of their own: such
// records carry no guards.
func fixedItems() *transform.Registry {
	spec := itemSpec("1")
	for i := range spec.New.Kinds {
		spec.New.Kinds[i].Fixed = true
	}
	r := transform.NewRegistry("items")
	if err := r.Add("v1", "v2", spec); err != nil {
		panic(err)
	}
	return r
}

// load makes an upgrade under traffic, with loaders that sleep and die, and returns what is
// wrong at its end; "" is nothing.
func (l *loaders) load(t *testing.T, seed uint64) string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSystemOf(ctx, t, memory(), fixedItems(), stack)
	s.quiet()
	l.s, l.rng, l.kills, l.pauses, l.died = s, rand.New(rand.NewPCG(seed, 77)), 2, 2, make(chan *process, 2)
	a, pa := s.server(ctx, "server-a", nil)
	tr := newTraffic(t, a)
	stop := drive(ctx, tr, seed, 3, 20, 20*time.Millisecond)
	pass(3 * time.Second)
	running := map[string]*process{}
	start := func(id string) { running[id] = s.controllerProcess(ctx, id, l.wrap) }
	start("controller-0")
	start("controller-1")
	s.begin(ctx)
	pass(time.Duration(seed%7) * time.Second)
	stop()
	pass(time.Second)
	l.still.Store(true)
	flipped := false
	deadline := time.After(10 * time.Minute) // each load may sleep for 40 s, and is repeated where its process dies
	for watch := s.admin.Watch(ctx); !flipped; {
		select {
		case p := <-l.died:
			for id, r := range maps.Clone(running) {
				if r == p {
					<-p.done
					pass(2 * time.Second)
					start(id)
				}
			}
		case d := <-watch:
			flipped = active("v2")(d)
		case <-deadline:
			stands, err := s.admin.Progress(ctx)
			s.check(err)
			cancel()
			ended := ""
			for id, p := range running {
				if p.kill(); p.astray != nil {
					ended += fmt.Sprintf("%s has ended: %v; ", id, p.astray)
				}
			}
			pa.kill()
			return fmt.Sprintf("%sit stands still: %+v", ended, stands)
		}
	}
	pass(30 * time.Second) // loaders that still sleep wake up
	wrong := ""
	if err := tr.found(ctx, s); err != nil {
		wrong = err.Error()
	}
	cancel()
	for _, p := range append(slices.Collect(maps.Values(running)), pa) {
		p.kill()
	}
	return wrong
}

// TestLoaders: nothing that a loader does wrong is there after the switch.
func TestLoaders(t *testing.T) {
	eachSeed(t, 30, func(t *testing.T, seed uint64) {
		if wrong := (&loaders{}).load(t, seed); wrong != "" {
			t.Error(wrong)
		}
	})
}

// TestBrokenLoaders breaks one of the rules at a time, which some seed must show: otherwise
// TestLoaders would prove nothing.
func TestBrokenLoaders(t *testing.T) {
	raced.Leave(t)
	for _, broken := range []string{"no fence", "no search for strays", "nothing is repaired"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			const seeds = 100
			for seed := range uint64(seeds) {
				wrong := ""
				synctest.Test(t, func(t *testing.T) { wrong = (&loaders{broken: broken}).load(t, seed) })
				if wrong != "" {
					t.Logf("seed %d: %.200s", seed, wrong)
					return
				}
			}
			t.Errorf("%d seeds do not find it", seeds)
		})
	}
}
