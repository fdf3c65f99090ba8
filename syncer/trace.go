package syncer

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

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
