package syncer

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// endSpan ends a span with what it was about. Of an error it says no more than that there was one:
// errors quote keys, and traces leave the house.
func endSpan(span trace.Span, err error, about ...attribute.KeyValue) {
	if span.IsRecording() {
		span.SetAttributes(about...)
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
	}
	span.End()
}
