package vrunner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// ErrHeld: writes are held for a switch, and this one waited as long as it may, or too
// many do. Nothing was written; try again shortly.
var ErrHeld = refusal.Because(refusal.Held, "writes are held during a switch; try again", nil)

// gate lets writes pass with the tokens of the current version, or holds them.
type gate struct {
	cap          time.Duration
	maxHeld      int
	maxHeldBytes int64

	mu       sync.Mutex
	version  string        // whose stack a pass is for
	tokens   record.Tokens // nil while writes are held
	revision int64         // of the record that the tokens come from
	opened   chan struct{} // closed when tokens are there; replaced when they are taken away
	inflight int
	idle     chan struct{} // closed when inflight is 0; replaced when it is not
	held     int
	bytes    int64         // of the bodies that are kept for those held
	closed   time.Time     // when writes began to be held; zero: they are not
	lastHold time.Duration // how long they were, the latest time
}

func newGate(cfg Config) *gate {
	idle := make(chan struct{})
	close(idle)
	return &gate{cap: cfg.HoldCap, maxHeld: cfg.MaxHeld, maxHeldBytes: cfg.MaxHeldBytes, opened: make(chan struct{}), idle: idle}
}

// pass is one write's permission: it may send with these tokens and no others.
type pass struct {
	version  string
	tokens   record.Tokens
	revision int64
	gate     *gate
}

// enter waits for the gate to be open and passes it, with a body of so many bytes. Every
// pass must be left.
func (g *gate) enter(ctx context.Context, bytes int64) (*pass, error) {
	var timeout <-chan time.Time
	for {
		g.mu.Lock()
		if g.tokens != nil {
			p := &pass{version: g.version, tokens: g.tokens, revision: g.revision, gate: g}
			if g.inflight++; g.inflight == 1 {
				g.idle = make(chan struct{})
			}
			g.mu.Unlock()
			return p, nil
		}
		if g.held >= g.maxHeld {
			g.mu.Unlock()
			return nil, fmt.Errorf("%d writes wait already: %w", g.maxHeld, ErrHeld)
		}
		if g.bytes+bytes > g.maxHeldBytes {
			g.mu.Unlock()
			return nil, fmt.Errorf("writes of %d bytes wait already: %w", g.maxHeldBytes, ErrHeld)
		}
		g.held++
		g.bytes += bytes
		opened := g.opened
		g.mu.Unlock()
		if timeout == nil {
			t := time.NewTimer(g.cap)
			defer t.Stop()
			timeout = t.C
		}
		var err error
		select {
		case <-opened:
		case <-timeout:
			err = fmt.Errorf("waited %s: %w", g.cap, ErrHeld)
		case <-ctx.Done():
			err = ctx.Err()
		}
		g.mu.Lock()
		g.held--
		g.bytes -= bytes
		g.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

func (p *pass) leave() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.gate.inflight--; p.gate.inflight == 0 {
		close(p.gate.idle)
	}
}

// update follows the record: open with the tokens it publishes for writing, or held, also
// if hold is true.
func (g *gate) update(d upgradestate.Deployment, hold bool) {
	version, places := upgradestate.WritePlaces(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.Revision < g.revision {
		return
	}
	g.revision = d.Revision
	if hold || len(places) == 0 {
		if g.tokens != nil {
			g.tokens, g.opened, g.closed = nil, make(chan struct{}), time.Now()
		}
		return
	}
	wasOpen := g.tokens != nil
	g.version, g.tokens = version, tokensOf(places)
	if !wasOpen {
		close(g.opened)
		if !g.closed.IsZero() { // at the start it is closed, and nobody is held up by a switch
			g.lastHold, g.closed = time.Since(g.closed), time.Time{}
		}
	}
}

// hold returns how long writes were held the latest time, or are held by now.
func (g *gate) hold() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed.IsZero() {
		return time.Since(g.closed)
	}
	return g.lastHold
}

// drained is closed when no write is in flight. It makes sense only while the gate holds.
func (g *gate) drained() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.idle
}

func (g *gate) state() (open bool, held int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokens != nil, g.held
}

func tokensOf(places []upgradestate.Place) record.Tokens {
	toks := record.Tokens{}
	for _, p := range places {
		toks[p.Kind] = tokenOf(p)
	}
	return toks
}

func tokenOf(p upgradestate.Place) record.Token {
	return record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
}
