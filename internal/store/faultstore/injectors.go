package faultstore

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

// Never returns an injector without faults.
func Never() Injector { return InjectorFunc(func(Op) Fault { return Fault{} }) }

// Always returns an injector that gives each command the same fault.
func Always(f Fault) Injector { return InjectorFunc(func(Op) Fault { return f }) }

// On limits an injector to some commands.
func On(inner Injector, commands ...Command) Injector {
	return When(inner, func(op Op) bool { return slices.Contains(commands, op.Command) })
}

// When limits an injector to the ops that a predicate accepts.
func When(inner Injector, accept func(Op) bool) Injector {
	return InjectorFunc(func(op Op) Fault {
		if !accept(op) {
			return Fault{}
		}
		return inner.Inject(op)
	})
}

// Any asks injectors in order and returns the first fault.
func Any(inner ...Injector) Injector {
	return InjectorFunc(func(op Op) Fault {
		for _, inj := range inner {
			if f := inj.Inject(op); !f.none() {
				return f
			}
		}
		return Fault{}
	})
}

// Nth injects into the n-th op that it sees, counted from 1, and into no other.
func Nth(n int64, f Fault) Injector {
	var asked atomic.Int64
	return InjectorFunc(func(Op) Fault {
		if asked.Add(1) == n {
			return f
		}
		return Fault{}
	})
}

// Probability injects with probability p, decided by a seeded generator. The n-th op that it sees
// has the same fault in each run.
func Probability(seed uint64, p float64, f Fault) Injector {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, seed))
	return InjectorFunc(func(Op) Fault {
		mu.Lock()
		defer mu.Unlock()
		if rnd.Float64() < p {
			return f
		}
		return Fault{}
	})
}

// Toggle is an injector that can be switched on and off. It starts switched off, so that a test can
// set up without faults.
type Toggle struct {
	inner Injector
	on    atomic.Bool
}

// NewToggle wraps an injector. The result is switched off.
func NewToggle(inner Injector) *Toggle { return &Toggle{inner: inner} }

// On switches the faults on.
func (t *Toggle) On() { t.on.Store(true) }

// Off switches the faults off. Paused commands stay paused.
func (t *Toggle) Off() { t.on.Store(false) }

// Inject asks the inner injector while switched on.
func (t *Toggle) Inject(op Op) Fault {
	if !t.on.Load() {
		return Fault{}
	}
	return t.inner.Inject(op)
}

// Counter counts the ops and the faults of an injector.
type Counter struct {
	inner       Injector
	seen, fired atomic.Int64
}

// Count wraps an injector with a Counter.
func Count(inner Injector) *Counter { return &Counter{inner: inner} }

// Inject asks the inner injector and counts the result.
func (c *Counter) Inject(op Op) Fault {
	c.seen.Add(1)
	f := c.inner.Inject(op)
	if !f.none() {
		c.fired.Add(1)
	}
	return f
}

// Seen returns the number of ops so far.
func (c *Counter) Seen() int64 { return c.seen.Load() }

// Fired returns the number of faults so far.
func (c *Counter) Fired() int64 { return c.fired.Load() }

// AssertFired fails the test if fewer than n faults fired.
func (c *Counter) AssertFired(t interface {
	Helper()
	Errorf(format string, args ...any)
}, n int64) {
	t.Helper()
	if fired := c.Fired(); fired < n {
		t.Errorf("%d faults fired in %d commands, want at least %d", fired, c.Seen(), n)
	}
}

// Gate pauses commands until Open, like a stopped process. It announces each pause, so that a test
// knows when a command hangs.
type Gate struct {
	held chan Op
	open chan struct{}
	once sync.Once
	max  int64
	n    atomic.Int64
}

// NewGate returns a gate that pauses the first n ops before they are sent.
func NewGate(n int) *Gate {
	return &Gate{held: make(chan Op, n), open: make(chan struct{}), max: int64(n)}
}

// Inject pauses the first ops and announces them on Held.
func (g *Gate) Inject(op Op) Fault {
	if g.n.Add(1) > g.max {
		return Fault{}
	}
	g.held <- op
	return Fault{Pause: g.open}
}

// Held returns a channel with each paused op.
func (g *Gate) Held() <-chan Op { return g.held }

// Open releases all paused commands.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }
