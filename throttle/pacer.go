package throttle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Config configures a Pacer. The zero value holds back for the record alone.
type Config struct {
	MaxRate       int    // records a second of this controller; 0 is no limit
	MaxSourceLoad int    // percent of the source's processors; 0 is no bound
	Window        string // as upgradestate.ParseWindow reads it, where the record names none
	// Source and Target are measured; nil is not.
	Source, Target record.Monitor
	Now            func() time.Time // time.Now; decides the time of day alone
}

// Pacer holds bulk work back. Its methods may be called concurrently.
type Pacer struct {
	cfg Config

	mu      sync.Mutex
	said    upgradestate.Pace // by the record
	share   float64           // of the ring that this controller owns
	changed chan struct{}     // closed and replaced when something that Wait looks at changed
	debt    float64           // records that went before their time
	paid    time.Time         // up to when debt is paid off

	measured  time.Time // when the latest measurement ended; zero: never
	measuring bool
	counted   int // records since then
	failures  int // errors since then
	throttle  throttle
	strain    strain
	why       string // of strain; empty with strainNone
	by        Cause  // likewise
}

const (
	every   = time.Second     // between measurements
	oldest  = 5 * time.Second // a measurement that still counts
	timeout = 2 * time.Second // of a measurement
)

// New makes a Pacer.
func New(cfg Config) *Pacer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Pacer{cfg: cfg, share: 1, strain: strainNone, changed: make(chan struct{})}
}

// Set takes over the pace of the record, and which share of the ring this controller owns.
func (p *Pacer) Set(said upgradestate.Pace, share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if said == p.said && share == p.share {
		return
	}
	p.payOff(time.Now())
	p.said, p.share = said, share
	p.announce()
}

// Failed notes that work had to be repeated: errors are pressure.
func (p *Pacer) Failed() {
	p.mu.Lock()
	p.failures++
	p.mu.Unlock()
}

// Reason returns why bulk work is held back now; "" if it is not. standstill: nothing of it
// goes on.
func (p *Pacer) Reason() (why string, standstill bool) {
	why, _, standstill = p.reason()
	return why, standstill
}

// Cause is Reason in one word; CauseNone if nothing is held back.
func (p *Pacer) Cause() Cause {
	_, cause, _ := p.reason()
	return cause
}

func (p *Pacer) reason() (why string, cause Cause, standstill bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why, cause := p.stopped(time.Now()); cause != CauseNone {
		return why, cause, true
	}
	rate := p.rate()
	switch {
	case rate == 0:
		return "", CauseNone, false
	case rate == p.throttle.limit:
		return fmt.Sprintf("slowed down to %.0f records a second: %s", rate, p.why), p.by, false
	default:
		return fmt.Sprintf("limited to %.0f records a second", rate), CauseRate, false
	}
}

// Wait returns when a page of bulk work may be read. records is how many the page before
// it had that the caller read.
func (p *Pacer) Wait(ctx context.Context, records int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.payOff(time.Now())
	p.debt += float64(records)
	p.counted += records
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := time.Now()
		p.payOff(now)
		if p.due(now) {
			p.measure(ctx)
			continue
		}
		look := every
		if _, cause := p.stopped(now); cause == CauseNone {
			rate := p.rate()
			if rate == 0 || p.debt <= 0 {
				if rate == 0 {
					p.debt = 0
				}
				return nil
			}
			look = min(look, time.Duration(p.debt/rate*float64(time.Second))+time.Millisecond)
		}
		if err := p.pause(ctx, look); err != nil {
			return err
		}
	}
}

// pause waits until something changed, at most for a while. p.mu is held, but not while
// it waits.
func (p *Pacer) pause(ctx context.Context, most time.Duration) error {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-time.After(most):
	}
	return nil
}

// payOff reduces the debt at the present rate. p.mu is held.
func (p *Pacer) payOff(now time.Time) {
	if !p.paid.IsZero() {
		p.debt = max(0, p.debt-p.rate()*now.Sub(p.paid).Seconds())
	}
	p.paid = now
}

// rate is what is allowed of bulk work, in records a second; 0 is no limit. p.mu is held.
func (p *Pacer) rate() float64 {
	rate := 0.0
	bound := func(r float64) {
		if r > 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}
	bound(float64(p.cfg.MaxRate))
	if p.said.MaxRate > 0 {
		bound(max(1, float64(p.said.MaxRate)*p.share))
	}
	bound(p.throttle.limit)
	return rate
}

// stopped returns why nothing goes on; CauseNone if something may. p.mu is held.
func (p *Pacer) stopped(now time.Time) (string, Cause) {
	if p.said.Paused {
		if p.said.Reason == "" {
			return "paused by an operator: resume it", CausePaused
		}
		return "paused: " + p.said.Reason, CausePaused
	}
	if why := p.outside(); why != "" {
		return why, CauseWindow
	}
	switch {
	case p.cfg.Source == nil && p.cfg.Target == nil, p.measured.IsZero() && !p.measuring:
		return "", CauseNone
	case p.measured.IsZero() || now.Sub(p.measured) > oldest && p.measuring:
		return "the databases are being measured", CauseMeasuring
	case p.strain == strainMost:
		return p.why, p.by
	default:
		return "", CauseNone
	}
}

// outside reports that the time of day is not that of bulk work; "" if it is.
func (p *Pacer) outside() string {
	text := p.said.Window
	if text == "" {
		text = p.cfg.Window
	}
	window, err := upgradestate.ParseWindow(text)
	if err != nil {
		return err.Error()
	}
	if !window.Holds(p.cfg.Now()) {
		return fmt.Sprintf("outside of the window %s UTC", text)
	}
	return ""
}

// announce wakes who waits. p.mu is held.
func (p *Pacer) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}
