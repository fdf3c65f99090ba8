package throttle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Config configures a Pacer. The zero value applies only the record's pace.
type Config struct {
	MaxRate       int    // records a second for this controller; 0: no limit
	MaxSourceLoad int    // percent of the source's processors; 0: no limit
	Window        string // for upgradestate.ParseWindow; used if the record has none
	// Source and Target are the databases to measure; nil: not measured.
	Source, Target record.Monitor
	// Turns are shared by the Pacers of a process, one for each deployment; nil: no turns.
	Turns *Turns
	Now   func() time.Time // default time.Now; only for the time of day
}

// Pacer limits bulk work. Its methods may be called concurrently.
type Pacer struct {
	cfg Config

	mu      sync.Mutex
	said    upgradestate.Pace // pace from the record
	share   float64           // of the ring, owned by this controller
	changed chan struct{}     // closed and replaced after each change that Wait depends on
	debt    float64           // records read ahead of the rate
	paid    time.Time         // debt is settled up to this time

	measured  time.Time // end of the latest measurement; zero: never
	measuring bool
	counted   int // records since then
	failures  int // errors since then
	throttle  throttle
	strain    strain
	why       string // of strain; empty with strainNone
	by        Cause  // of strain
}

const (
	every   = time.Second     // between measurements
	oldest  = 5 * time.Second // maximum age of a valid measurement
	timeout = 2 * time.Second // of a measurement
)

// New returns a Pacer that owns the whole ring until Set changes that.
func New(cfg Config) *Pacer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Pacer{cfg: cfg, share: 1, strain: strainNone, changed: make(chan struct{})}
}

// Set takes the pace from the record, and the share of the ring that this controller owns.
func (p *Pacer) Set(said upgradestate.Pace, share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if said == p.said && share == p.share {
		return
	}
	// Settle the debt at the old rate before the rate changes.
	p.payOff(time.Now())
	p.said, p.share = said, share
	p.announce()
}

// Failed reports that work had to be repeated. Errors count as pressure.
func (p *Pacer) Failed() {
	p.mu.Lock()
	p.failures++
	p.mu.Unlock()
}

// Reason returns why bulk work is limited now; "" if it is not. standstill reports that no bulk
// work proceeds at all.
func (p *Pacer) Reason() (why string, standstill bool) {
	why, _, standstill = p.reason()
	return why, standstill
}

// Cause returns the reason in one word; CauseNone if there is no limit.
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
	if why := p.cfg.Turns.waits(p); why != "" {
		return why, CauseTurn, true
	}
	rate := p.rate()
	switch {
	case rate == 0:
		return "", CauseNone, false
	// Of equal limits name the pressure: it is the one that passes by itself.
	case rate == p.throttle.limit:
		return fmt.Sprintf("slowed down to %.0f records a second: %s", rate, p.why), p.by, false
	default:
		return fmt.Sprintf("limited to %.0f records a second", rate), CauseRate, false
	}
}

// Wait blocks until a page of bulk work may be read, or returns ctx's error. records is the size of
// the page that the caller read before.
func (p *Pacer) Wait(ctx context.Context, records int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.payOff(time.Now())
	// A page's size is known only after its read, so each page is paid for afterwards.
	p.debt += float64(records)
	p.counted += records
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := time.Now()
		p.payOff(now)
		// Before the measurement: hundreds of Pacers in the line would measure for nothing.
		if turn := p.turn(now); turn != nil {
			if err := p.pause(ctx, every, turn); err != nil {
				return err
			}
			continue
		}
		// Measure before the decision. Only one waiting caller does; measure gives up p.mu
		// meanwhile.
		if p.due(now) {
			p.measure(ctx)
			continue
		}
		look := every
		switch _, cause := p.stopped(now); cause {
		case CauseNone:
			rate := p.rate()
			// Without a limit old debt must not delay a later, limited page.
			if rate == 0 || p.debt <= 0 {
				if rate == 0 {
					p.debt = 0
				}
				return nil
			}
			// Wake up when the debt is paid; the extra millisecond covers rounding.
			look = min(look, time.Duration(p.debt/rate*float64(time.Second))+time.Millisecond)
		case CauseMeasuring: // only for a moment
		default:
			p.cfg.Turns.leave(p, now) // others go on meanwhile
		}
		if err := p.pause(ctx, look, nil); err != nil {
			return err
		}
	}
}

// turn returns what to wait for until this Pacer's turn; nil if it has come, or if work is stopped
// anyway. The caller holds p.mu.
func (p *Pacer) turn(now time.Time) <-chan struct{} {
	if p.said.Paused || p.outside() != "" {
		return nil
	}
	return p.cfg.Turns.take(p, now)
}

// Rest tells the Pacer that no bulk work is left, so that its turn goes to another deployment. The next
// Wait asks for a new one.
func (p *Pacer) Rest() { p.cfg.Turns.leave(p, time.Now()) }

// pause waits for a change or a turn, at most the given time. The caller holds p.mu; pause releases it
// during the wait.
func (p *Pacer) pause(ctx context.Context, most time.Duration, turn <-chan struct{}) error {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-turn:
	case <-time.After(most):
	}
	return nil
}

// payOff reduces the debt at the present rate. The caller holds p.mu.
func (p *Pacer) payOff(now time.Time) {
	if !p.paid.IsZero() {
		p.debt = max(0, p.debt-p.rate()*now.Sub(p.paid).Seconds())
	}
	p.paid = now
}

// rate returns the lowest limit of bulk work, in records a second; 0 means no limit. The caller
// holds p.mu.
func (p *Pacer) rate() float64 {
	rate := 0.0
	bound := func(r float64) {
		if r > 0 && (rate == 0 || r < rate) {
			rate = r
		}
	}
	bound(float64(p.cfg.MaxRate))
	// The record's rate is for all controllers, so each takes its share of it.
	if p.said.MaxRate > 0 {
		bound(max(1, float64(p.said.MaxRate)*p.share))
	}
	bound(p.throttle.limit)
	return rate
}

// stopped returns why no bulk work may proceed; CauseNone if it may. The caller holds p.mu.
func (p *Pacer) stopped(now time.Time) (string, Cause) {
	if p.said.Paused {
		if p.said.Reason == "" {
			return "paused by an operator: run 'resume'", CausePaused
		}
		return "paused: " + p.said.Reason, CausePaused
	}
	if why := p.outside(); why != "" {
		return why, CauseWindow
	}
	switch {
	case p.cfg.Source == nil && p.cfg.Target == nil, p.measured.IsZero() && !p.measuring:
		return "", CauseNone
	// Never go by an outdated measurement while a new one is on its way.
	case p.measured.IsZero() || now.Sub(p.measured) > oldest && p.measuring:
		return "the load of the databases is not measured yet", CauseMeasuring
	case p.strain == strainMost:
		return p.why, p.by
	default:
		return "", CauseNone
	}
}

// outside returns a text if the time of day is outside the window; "" if it is inside.
func (p *Pacer) outside() string {
	text := p.said.Window
	if text == "" {
		text = p.cfg.Window
	}
	window, err := upgradestate.ParseWindow(text)
	// An unreadable window stops work: an operator wanted to restrict it.
	if err != nil {
		return err.Error()
	}
	if !window.Holds(p.cfg.Now()) {
		return fmt.Sprintf("outside of the window %s UTC", text)
	}
	return ""
}

// announce wakes all waiting callers. The caller holds p.mu.
func (p *Pacer) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}
