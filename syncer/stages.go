package syncer

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Stage is one of the things that a copy spends its time on.
type Stage int

const (
	Wait      Stage = iota // for the pace that is allowed, and for a target that may be written
	Read                   // pages of the source
	Transform              // what was read
	Write                  // what is not there yet
	Again                  // what was there already, or cannot be stored: read, transformed and applied in transactions
	stages
)

func (s Stage) String() string {
	return [stages]string{"wait", "read", "transform", "write", "again"}[s]
}

// spent is how long the workers of the copy were at each stage, in nanoseconds.
type spent [stages]atomic.Int64

// since adds the time since a moment to a stage, also to the trace of the page that is copied, and
// returns the present one.
func (e *Engine) since(ctx context.Context, at Stage, begun time.Time) time.Time {
	now := time.Now()
	e.spent[at].Add(int64(now.Sub(begun)))
	if trace.SpanFromContext(ctx).IsRecording() {
		_, span := e.Tracer.Start(ctx, at.String(), trace.WithTimestamp(begun))
		span.End(trace.WithTimestamp(now))
	}
	return now
}

// Stages returns how long this engine's copies have taken at each stage, all workers added up:
// four workers that only write for a second spend four.
func (e *Engine) Stages() map[Stage]time.Duration {
	out := make(map[Stage]time.Duration, stages)
	for at := range stages {
		out[at] = time.Duration(e.spent[at].Load())
	}
	return out
}
