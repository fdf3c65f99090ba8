package switchover

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"dbcontroller.dev/upgradestate"
)

// SpanName is the name of the span of one switch attempt. Attempts are few and each matters, so a
// sampler should keep all of them.
const SpanName = "switch"

// traceAttempt ends the previous attempt's span and starts one for seen. A zero seen starts none.
func (r *Driver) traceAttempt(d upgradestate.Deployment, seen attempt, now time.Time) {
	if r.span != nil {
		r.traceStep(now)
		r.span.SetAttributes(attribute.String("serves", d.CurrentVersion))
		r.span.End(trace.WithTimestamp(now))
		r.span = nil
	}
	if seen.id == "" {
		return
	}
	// The background context, because the span outlives the pass that starts it.
	_, r.span = r.cfg.Tracer.Start(context.Background(), SpanName, trace.WithTimestamp(now), trace.WithAttributes(
		attribute.String("from", d.CurrentVersion), attribute.String("to", d.Upgrade.TargetVersion), attribute.Int64("attempt", int64(seen.n))))
}

// traceStep records the span of the current step, which has just ended.
func (r *Driver) traceStep(now time.Time) {
	if r.span == nil || r.step == "" {
		return
	}
	ctx := trace.ContextWithSpan(context.Background(), r.span)
	_, span := r.cfg.Tracer.Start(ctx, string(r.step), trace.WithTimestamp(r.stepSince))
	span.End(trace.WithTimestamp(now))
}
