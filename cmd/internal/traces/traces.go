// Package traces sends spans of what a controller does to a collector of OpenTelemetry, where an
// operator has named one.
//
// Tracing never holds a controller up: spans wait in a queue that is bounded, and are dropped where
// a collector is slow, away or hangs. That is said at most once in a while. What waits when the
// process ends has a few seconds to be delivered.
//
// It does not own what is traced: spans are made by syncer and switchover, of which none carries
// keys or values. How a collector's certificate is checked and what headers it wants is said by the
// exporter's own variables, OTEL_EXPORTER_OTLP_CERTIFICATE and OTEL_EXPORTER_OTLP_HEADERS.
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
	"dbcontroller.dev/switchover"
)

const (
	exportTimeout = 5 * time.Second // of one delivery
	flushTimeout  = 3 * time.Second // of all that waits at the end
	sayEvery      = 5 * time.Minute
)

// Open makes a tracer for a process. It is nil where none is configured. stop delivers what waits,
// and returns in time whatever the collector does.
func Open(cfg config.Config, id string, log *zap.Logger) (tracer trace.Tracer, stop func(), err error) {
	if cfg.Traces.Endpoint == "" {
		return nil, func() {}, nil
	}
	// It connects when there is something to deliver.
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
		// What is left then is dropped at once, so that nothing goes on behind the end.
		defer context.AfterFunc(ctx, over)()
		if err := provider.Shutdown(ctx); err != nil {
			log.Debug("close traces", zap.Error(err))
		}
	}, nil
}

// switches samples every switch, and of the rest as many as the sampler in it.
type switches struct{ sdktrace.Sampler }

func (s switches) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == switchover.SpanName {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return s.Sampler.ShouldSample(p)
}

// lenient drops what cannot be delivered. The library would print each failure.
type lenient struct {
	sdktrace.SpanExporter
	life context.Context //nolint:containedctx // of deliveries, which the library bounds by time alone
	log  *zap.Logger

	mu   sync.Mutex
	said time.Time
	lost int // since then
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
