package switchover_test

import (
	"context"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
)

// TestTrace: a switch is one span, and its steps are spans that follow each other in it.
func TestTrace(t *testing.T) {
	t.Parallel()
	slow := faultstore.On(faultstore.Always(faultstore.Fault{Latency: 100 * time.Millisecond}), faultstore.Fence)
	kinds := simple
	kinds.inject = map[string]faultstore.Injector{"v1": slow, "v2": slow}
	inBubble(t, kinds, func(ctx context.Context, w *world) {
		spans := tracetest.NewInMemoryExporter()
		w.report(ctx, 300*time.Millisecond)
		w.drive(ctx, switchover.Config{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test")})
		w.await(ctx, "the flip", open("v2"))
		<-time.After(time.Second) // the driver has seen it
		all := spans.GetSpans()
		want := []struct {
			name  string
			least time.Duration
		}{{"HOLD", 0}, {"FENCE", 100 * time.Millisecond}, {"DRAIN", 300 * time.Millisecond}, {"SEAL_TARGET", 100 * time.Millisecond}, {"SEAL_SOURCE", 100 * time.Millisecond}}
		if len(all) != len(want)+1 {
			t.Fatalf("%d spans, want %d: %v", len(all), len(want)+1, all)
		}
		whole := all[len(want)]
		if whole.Name != switchover.SpanName || whole.Parent.IsValid() {
			t.Errorf("the last one is %s, of %v", whole.Name, whole.Parent)
		}
		at := whole.StartTime
		for i, step := range want {
			s := all[i]
			if took := s.EndTime.Sub(s.StartTime); s.Name != step.name || took < step.least || took > step.least+90*time.Millisecond {
				t.Errorf("step %d is %s and took %v, want %s and about %v", i, s.Name, took, step.name, step.least)
			}
			if s.Parent.SpanID() != whole.SpanContext.SpanID() || !s.StartTime.Equal(at) {
				t.Errorf("%s does not follow the step before in the switch", s.Name)
			}
			at = s.EndTime
		}
		if !at.Equal(whole.EndTime) {
			t.Errorf("the switch ends at %v, its last step at %v", whole.EndTime, at)
		}
		about := map[string]string{}
		for _, a := range whole.Attributes {
			about[string(a.Key)] = a.Value.String()
		}
		if about["from"] != "v1" || about["to"] != "v2" || about["attempt"] == "" || about["serves"] != "v2" {
			t.Errorf("the switch says %v", about)
		}
	})
}
