package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
)

// globe is all regions with their processes.
type globe struct {
	ctx         context.Context
	w           *weather
	rng         *rand.Rand
	places      map[string]*place
	copiers     map[string]*copier
	controllers map[string]*process
	strikes     int
	born        int // processes, for their names
}

// copier is the process that makes the copies of a region.
type copier struct {
	id    string
	stop  func()
	ended func()
}

func (g *globe) start() {
	for _, name := range placeNames {
		p := g.places[name]
		for _, other := range p.others {
			p.wires[other] = &wire{to: g.places[other], weather: g.w}
		}
	}
	for _, name := range placeNames {
		p := g.places[name]
		p.serve(g.ctx, g.id("server"))
		g.controllers[name] = g.controller(p)
		g.copiers[name] = g.copier(p)
	}
}

func (g *globe) id(of string) string {
	g.born++
	return fmt.Sprintf("%s-%d", of, g.born)
}

func (g *globe) controller(p *place) *process {
	id := g.id("controller")
	c := p.controllerProcess(g.ctx, id, func(_ *process, _ string, ns record.Namespace) record.Namespace {
		return faultstore.Wrap(ns, g.w.of(id))
	})
	c.conn.OnCommit(g.w.commits)
	return c
}

func (g *globe) copier(p *place) *copier {
	ctx, stop := context.WithCancel(g.ctx)
	id := g.id("copier")
	return &copier{id: id, stop: stop, ended: p.follow(ctx, id)}
}

// strike is one misfortune, and the time until the next one.
func (g *globe) strike() {
	g.strikes++
	name := placeNames[g.rng.IntN(len(placeNames))]
	p := g.places[name]
	long := time.Duration(1+g.rng.IntN(8)) * time.Second
	switch g.rng.IntN(6) {
	case 0: // a region is cut off, for longer than a connection survives
		long += pingLimit / 2
		for other, there := range g.places {
			if other != name {
				there.wires[name].sever()
				p.wires[other].sever()
			}
		}
		pass(long)
		g.heal()
	case 1: // one direction of one line
		one := p.wires[p.others[g.rng.IntN(2)]]
		one.sever()
		pass(long)
		one.heal()
	case 2:
		p.die()
		pass(long / 5)
		p.serve(g.ctx, g.id("server"))
	case 3:
		g.controllers[name].kill()
		pass(long / 5)
		g.controllers[name] = g.controller(p)
	case 4: // the next process takes over, and the writes of the last one come late
		old := g.copiers[name]
		wake := make(chan struct{})
		g.w.mu.Lock()
		g.w.asleep[old.id] = wake
		g.w.mu.Unlock()
		pass(long / 5)
		g.copiers[name] = g.copier(p)
		pass(long)
		old.stop()
		close(wake)
		g.w.mu.Lock()
		delete(g.w.asleep, old.id)
		g.w.mu.Unlock()
		old.ended()
	default: // nobody makes copies for a while
		g.copiers[name].stop()
		g.copiers[name].ended()
		pass(long / 5)
		g.copiers[name] = g.copier(p)
	}
	pass(time.Duration(g.rng.IntN(2000)) * time.Millisecond)
}

func (g *globe) heal() {
	for _, p := range g.places {
		for _, n := range p.wires {
			n.heal()
		}
	}
}

// end ends all processes. The context has ended.
func (g *globe) end() {
	for name, p := range g.places {
		g.copiers[name].ended()
		g.controllers[name].kill()
		p.die()
	}
	g.heal()
}
