package switchover

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"dbcontroller.dev/upgradestate"
)

// SpanName is that of the span of an attempt at a switch. There are few of them, and each matters:
// who samples keeps all.
const SpanName = "switch"

// traceAttempt ends the span of the attempt before, and begins that of the one that was seen, if
// it is one.
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
	_, r.span = r.cfg.Tracer.Start(context.Background(), SpanName, trace.WithTimestamp(now), trace.WithAttributes(
		attribute.String("from", d.CurrentVersion), attribute.String("to", d.Upgrade.TargetVersion), attribute.Int64("attempt", int64(seen.n))))
}

// traceStep makes the span of the present step, which is over.
func (r *Driver) traceStep(now time.Time) {
	if r.span == nil || r.step == "" {
		return
	}
	ctx := trace.ContextWithSpan(context.Background(), r.span)
	_, span := r.cfg.Tracer.Start(ctx, string(r.step), trace.WithTimestamp(r.stepSince))
	span.End(trace.WithTimestamp(now))
}
