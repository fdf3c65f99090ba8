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

// ErrHeld means that a switch holds writes, and that this write waited up to the limit or found the
// queue full. Nothing was written; retry shortly.
var ErrHeld = refusal.Because(refusal.Held, "writes are held during a switch; try again", nil)

// gate lets writes pass with the tokens of the current version, or holds them.
type gate struct {
	cap          time.Duration
	maxHeld      int
	maxHeldBytes int64

	mu       sync.Mutex
	version  string        // version whose stack runs the write
	tokens   record.Tokens // nil while the gate holds writes
	revision int64         // revision of the record that the tokens come from
	opened   chan struct{} // closed when the gate opens; replaced when it closes
	inflight int
	idle     chan struct{} // closed while inflight is 0; replaced when it is not
	held     int
	bytes    int64         // total size of the bodies of held writes
	closed   time.Time     // when the gate began to hold; zero: it does not
	lastHold time.Duration // duration of the latest hold
}

func newGate(cfg Config) *gate {
	idle := make(chan struct{})
	close(idle)
	return &gate{cap: cfg.HoldCap, maxHeld: cfg.MaxHeld, maxHeldBytes: cfg.MaxHeldBytes, opened: make(chan struct{}), idle: idle}
}

// pass permits one write to send commands with these tokens and no others.
type pass struct {
	version  string
	tokens   record.Tokens
	revision int64
	gate     *gate
}

// enter waits until the gate is open and returns a pass. bytes is the size of the request body that
// stays in memory during the wait. The caller must leave every pass.
func (g *gate) enter(ctx context.Context, bytes int64) (*pass, error) {
	var timeout <-chan time.Time
	for {
		g.mu.Lock()
		// State and tokens are read under one lock. A write with tokens newer than its state could
		// reach the target before the flip.
		if g.tokens != nil {
			p := &pass{version: g.version, tokens: g.tokens, revision: g.revision, gate: g}
			if g.inflight++; g.inflight == 1 {
				g.idle = make(chan struct{})
			}
			g.mu.Unlock()
			return p, nil
		}
		// Without limits a long hold would fill the memory with waiting requests.
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
		// One timer for all rounds: the cap limits the total wait of the write.
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
		// Back to the start even if the gate opened: it may hold again already.
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

// update makes the gate follow the record. It opens with the record's write tokens, or holds if the
// record has none or hold is true.
func (g *gate) update(d upgradestate.Deployment, hold bool) {
	version, places := upgradestate.WritePlaces(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	// Watch and direct reads may deliver records out of order. An older one could reopen a held
	// gate.
	if d.Revision < g.revision {
		return
	}
	g.revision = d.Revision
	if hold || len(places) == 0 {
		// A second record of the same switch must not restart the measured hold.
		if g.tokens != nil {
			g.tokens, g.opened, g.closed = nil, make(chan struct{}), time.Now()
		}
		return
	}
	wasOpen := g.tokens != nil
	g.version, g.tokens = version, tokensOf(places)
	if !wasOpen {
		close(g.opened)
		if !g.closed.IsZero() { // the first opening after the start ends no switch
			g.lastHold, g.closed = time.Since(g.closed), time.Time{}
		}
	}
}

// hold returns the duration of the latest hold, or of the present one so far.
func (g *gate) hold() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed.IsZero() {
		return time.Since(g.closed)
	}
	return g.lastHold
}

// drained returns a channel that is closed when no write is in flight. It is meaningful only while
// the gate holds.
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
