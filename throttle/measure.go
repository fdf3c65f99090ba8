package throttle

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// due reports whether a measurement is to be made before more is decided: not while
// nothing may go on anyway. p.mu is held.
func (p *Pacer) due(now time.Time) bool {
	if p.cfg.Source == nil && p.cfg.Target == nil || p.measuring || p.said.Paused || p.outside() != "" {
		return false
	}
	return p.measured.IsZero() || now.Sub(p.measured) >= every
}

// measure measures both databases. p.mu is held, but not while they are asked: others go
// by the measurement before.
func (p *Pacer) measure(ctx context.Context) {
	maxCPU := float64(p.cfg.MaxSourceLoad) / 100
	if p.said.MaxSourceLoad > 0 {
		maxCPU = float64(p.said.MaxSourceLoad) / 100
	}
	p.measuring = true
	p.mu.Unlock()
	by := CauseSource
	s, why := ask(ctx, "source", p.cfg.Source, maxCPU)
	switch t, more := ask(ctx, "target", p.cfg.Target, 0); {
	case s == strainMost:
	case t == strainMost, s == strainNone:
		s, why, by = t, more, CauseTarget
	}
	p.mu.Lock()
	p.measuring = false
	if ctx.Err() != nil {
		return // the next one that waits measures
	}
	now := time.Now()
	if s == strainNone && p.failures > 0 {
		s, why, by = strainSome, fmt.Sprintf("%d errors of this controller", p.failures), CauseErrors
	}
	done := 0.0
	if span := now.Sub(p.measured); !p.measured.IsZero() && span < oldest {
		done = float64(p.counted) / span.Seconds()
	}
	p.payOff(now)
	p.throttle = p.throttle.next(s, done)
	if p.strain = s; s != strainNone {
		p.why, p.by = why, by
	}
	p.measured, p.counted, p.failures = now, 0, 0
	p.announce()
}

// ask measures one database. An error is the strain that is not known.
func ask(ctx context.Context, name string, m record.Monitor, maxCPU float64) (strain, string) {
	if m == nil {
		return strainNone, ""
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	h, err := m.Health(ctx)
	if err != nil {
		return strainMost, fmt.Sprintf("the %s cannot be measured: %v; or set copy.throttle: off in the configuration", name, err)
	}
	s, why := judge(h, maxCPU)
	if why != "" {
		why = "the " + name + " is under pressure: " + why
	}
	return s, why
}
