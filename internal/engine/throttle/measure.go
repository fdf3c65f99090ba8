package throttle

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// due reports whether the next decision needs a new measurement. No measurement is due while bulk
// work must stop anyway. The caller holds p.mu.
func (p *Pacer) due(now time.Time) bool {
	if p.cfg.Source == nil && p.cfg.Target == nil || p.measuring || p.said.Paused || p.outside() != "" {
		return false
	}
	return p.measured.IsZero() || now.Sub(p.measured) >= every
}

// measure measures both databases. The caller holds p.mu; measure releases it during the queries,
// while other callers use the previous measurement.
func (p *Pacer) measure(ctx context.Context) {
	maxCPU := float64(p.cfg.MaxSourceLoad) / 100
	if p.said.MaxSourceLoad > 0 {
		maxCPU = float64(p.said.MaxSourceLoad) / 100
	}
	// measuring keeps other callers from starting a second measurement.
	p.measuring = true
	p.mu.Unlock()
	by := CauseSource
	s, why := ask(ctx, "source", p.cfg.Source, maxCPU)
	switch t, more := ask(ctx, "target", p.cfg.Target, 0); {
	case s == strainMost:
	// Report the worse side; with equal strain, the source.
	case t == strainMost, s == strainNone:
		s, why, by = t, more, CauseTarget
	}
	p.mu.Lock()
	p.measuring = false
	if ctx.Err() != nil {
		return // the next waiting caller measures
	}
	now := time.Now()
	if s == strainNone && p.failures > 0 {
		s, why, by = strainSome, fmt.Sprintf("%d errors of this controller", p.failures), CauseErrors
	}
	done := 0.0
	// A count over a long gap says little about the present rate.
	if span := now.Sub(p.measured); !p.measured.IsZero() && span < oldest {
		done = float64(p.counted) / span.Seconds()
	}
	// Settle the debt at the old rate before the rate changes.
	p.payOff(now)
	p.throttle = p.throttle.next(s, done)
	if p.strain = s; s != strainNone {
		p.why, p.by = why, by
	}
	p.measured, p.counted, p.failures = now, 0, 0
	p.announce()
}

// ask measures one database. An error counts as the highest strain, because the real one is
// unknown.
func ask(ctx context.Context, name string, m record.Monitor, maxCPU float64) (strain, string) {
	if m == nil {
		return strainNone, ""
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The timeout keeps a database that hangs from blocking all bulk work without a reason.
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
