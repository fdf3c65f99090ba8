package syncer

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Stage is a part of the work of a copy.
type Stage int

const (
	Wait      Stage = iota // for the pace, and for a writable target
	Read                   // pages of the source
	Transform              // the pages
	Write                  // new records
	Again                  // records that exist already or cannot be stored, by transactions
	stages
)

func (s Stage) String() string {
	return [stages]string{"wait", "read", "transform", "write", "again"}[s]
}

// spent is the time of all copying workers by stage, in nanoseconds.
type spent [stages]atomic.Int64

// since adds the time since begun to a stage and to the page's trace, and returns the present time.
func (e *Engine) since(ctx context.Context, at Stage, begun time.Time) time.Time {
	now := time.Now()
	e.spent[at].Add(int64(now.Sub(begun)))
	if trace.SpanFromContext(ctx).IsRecording() {
		_, span := e.Tracer.Start(ctx, at.String(), trace.WithTimestamp(begun))
		span.End(trace.WithTimestamp(now))
	}
	return now
}

// Stages returns the time that this engine's copies have spent at each stage, summed over workers:
// four workers that write for a second spend four seconds.
func (e *Engine) Stages() map[Stage]time.Duration {
	out := make(map[Stage]time.Duration, stages)
	for at := range stages {
		out[at] = time.Duration(e.spent[at].Load())
	}
	return out
}

// endSpan ends a span with its attributes. It records only that an error occurred: error texts
// quote keys, and traces may go to other companies.
func endSpan(span trace.Span, err error, about ...attribute.KeyValue) {
	// Attributes cost allocations, which a disabled tracer should not pay.
	if span.IsRecording() {
		span.SetAttributes(about...)
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
	}
	span.End()
}
