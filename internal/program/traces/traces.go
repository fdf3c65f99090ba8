// Package traces sends spans of a controller's work to an OpenTelemetry collector, if the operator
// has configured one.
//
// Tracing never delays a controller. Spans wait in a bounded queue and are dropped if the collector
// is slow, unreachable or hangs. A warning about it appears at most every 5 minutes. At the end of
// the process, waiting spans have 3 seconds to be delivered.
//
// The package does not own the spans. Packages syncer and switchover make them, without record keys
// or values. The exporter's own variables configure the collector's certificate and headers:
// OTEL_EXPORTER_OTLP_CERTIFICATE and OTEL_EXPORTER_OTLP_HEADERS.
package traces

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/switchover"
)

const (
	exportTimeout = 5 * time.Second // of one delivery
	flushTimeout  = 3 * time.Second // of all waiting spans at the end
	sayEvery      = 5 * time.Minute
)

// Open makes a tracer for a process. The tracer is nil if none is configured. The caller calls
// stop, which delivers waiting spans and returns within flushTimeout, whatever the collector does.
func Open(cfg config.Config, id string, log *zap.Logger) (tracer trace.Tracer, stop func(), err error) {
	if cfg.Traces.Endpoint == "" {
		return nil, func() {}, nil
	}
	// The exporter connects with the first delivery.
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpointURL(cfg.Traces.Endpoint),
		otlptracegrpc.WithTimeout(exportTimeout), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	if err != nil {
		return nil, nil, fmt.Errorf("operator.traces: %w", err)
	}
	life, over := context.WithCancel(context.Background())
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&lenient{SpanExporter: exporter, life: life, log: log.With(zap.String("endpoint", cfg.Traces.Endpoint))}),
		sdktrace.WithSampler(sdktrace.ParentBased(switches{sdktrace.TraceIDRatioBased(cfg.Traces.Ratio)})),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "dbcontroller"),
			attribute.String("service.instance.id", id), attribute.String("dbcontroller.deployment", cfg.Deployment))),
	)
	return provider.Tracer("dbcontroller"), func() {
		defer over()
		ctx, cancel := context.WithTimeout(life, flushTimeout)
		defer cancel()
		// Cancel deliveries that are still running, so that none continues after stop returns.
		defer context.AfterFunc(ctx, over)()
		if err := provider.Shutdown(ctx); err != nil {
			log.Debug("close traces", zap.Error(err))
		}
	}, nil
}

// switches samples every switch, and other spans with the embedded sampler.
type switches struct{ sdktrace.Sampler }

func (s switches) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == switchover.SpanName {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return s.Sampler.ShouldSample(p)
}

// lenient drops spans that cannot be delivered, and limits the warnings. The library would print
// each failure.
type lenient struct {
	sdktrace.SpanExporter
	life context.Context //nolint:containedctx // of deliveries, which the library bounds by time alone
	log  *zap.Logger

	mu   sync.Mutex
	said time.Time
	lost int // spans since the last warning
}

func (l *lenient) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	err := l.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost += len(spans); time.Since(l.said) >= sayEvery {
		l.log.Warn("traces cannot be delivered and are dropped; the controller works on", zap.Int("spans", l.lost), zap.Error(err))
		l.said, l.lost = time.Now(), 0
	}
	return nil
}
