package syncer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"dbcontroller.dev/syncer"
)

// TestTrace: the spans of a copy add up to its stages, those of what follows are there, and none
// says more than numbers.
func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		spans := tracetest.NewInMemoryExporter()
		for i := range 4 {
			w.put("a1", keyIn(i, 0), i)
		}
		w.write(w.dst, "v2", mutation("a2", keyIn(0, 0), 0)) // is applied in a transaction
		e := w.engine(w.owner(0, 1, 2, 3), func(p *syncer.Parts) {
			p.Source = timed{Namespace: p.Source, scan: 2 * time.Second}
			p.Target = timed{Namespace: p.Target, load: 3 * time.Second, apply: 5 * time.Second}
			p.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("test")
		})
		w.begin()
		w.eventually("ready", w.allReady)
		w.put("a1", keyIn(1, 0), 10)
		w.eventually("the change", func() bool { return w.target("a2", keyIn(1, 0)) == 10 })
		<-time.After(20 * time.Second) // it is compared as well
		stages := e.engine.Stages()
		e.stop(t)

		pages := map[string]bool{}
		records, names := int64(0), map[string]int{}
		for _, s := range spans.GetSpans() {
			names[s.Name]++
			if s.Name == "copy page" {
				pages[s.SpanContext.SpanID().String()] = true
			}
			for _, a := range s.Attributes {
				if s.Name == "copy page" && a.Key == "records" {
					records += a.Value.AsInt64()
				}
				switch a.Key {
				case "shard", "records", "changes", "groups":
				default:
					t.Errorf("%s says %s", s.Name, a.Key)
				}
			}
		}
		got := map[syncer.Stage]time.Duration{}
		for _, s := range spans.GetSpans() {
			for stage := range stages {
				if s.Name == stage.String() && pages[s.Parent.SpanID().String()] {
					got[stage] += s.EndTime.Sub(s.StartTime)
				}
			}
		}
		for stage := range stages {
			got[stage] += 0 // stages that took no time may have no span
		}
		if diff := cmp.Diff(stages, got); diff != "" {
			t.Errorf("spans of stages (-want +got):\n%s", diff)
		}
		if records != 4 || names["compare page"] == 0 || names["apply changes"] == 0 || names["compare changes"] == 0 {
			t.Errorf("%d records were copied, spans %v", records, names)
		}
	})
}
