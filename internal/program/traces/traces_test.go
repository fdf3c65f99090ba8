package traces_test

import (
	"context"
	"maps"
	"net"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/base/tracestest"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/program/traces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a tracer towards a listener, and what it logs.
func open(t *testing.T, address string, ratio float64) (trace.Tracer, func(), *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	cfg := config.Config{Deployment: "services/s/deployments/d", Traces: config.Traces{Endpoint: "http://" + address, Ratio: ratio}}
	tracer, stop, err := traces.Open(cfg, "one", zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	return tracer, stop, logs
}

func spans(tracer trace.Tracer, name string, n int) {
	for range n {
		_, span := tracer.Start(context.Background(), name)
		span.End()
	}
}

// TestDelivered: every switch arrives and, of the rest, as much as was asked for, at the end of
// the process at the latest.
func TestDelivered(t *testing.T) {
	t.Parallel()
	c := tracestest.Start(t)
	for _, ratio := range []float64{0, 1} {
		tracer, stop, logs := open(t, c.Address, ratio)
		spans(tracer, "copy page", 10)
		spans(tracer, switchover.SpanName, 1)
		stop()
		if logs.Len() > 0 {
			t.Errorf("it says %v", logs.All())
		}
	}
	if want := map[string]int{"copy page": 10, switchover.SpanName: 2}; !maps.Equal(c.Spans(), want) {
		t.Errorf("spans %v, want %v", c.Spans(), want)
	}
	if who := c.Process(); who["service.name"] != "dbcontroller" || who["service.instance.id"] != "one" || who["dbcontroller.deployment"] != "services/s/deployments/d" {
		t.Errorf("the process says that it is %v", who)
	}
}

// TestCollectorHangs: a collector that takes connections and never answers, or is not there, holds
// nobody up. It is said once, and nothing goes on behind the end (TestMain).
func TestCollectorHangs(t *testing.T) {
	t.Parallel()
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hanging.Close() }) // nobody is there
	for name, address := range map[string]string{"hangs": hanging.Addr().String(), "is not there": accesstest.ClosedPort(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, stop, logs := open(t, address, 1)
			start := time.Now()
			spans(tracer, "copy page", 100_000)
			if took := time.Since(start); took > 2*time.Minute {
				t.Errorf("100,000 spans took %v", took)
			}
			start = time.Now()
			stop()
			if took := time.Since(start); took > time.Minute {
				t.Errorf("the end took %v", took)
			}
			// The delivery that stop has broken off may say so a moment later.
			for limit := time.After(time.Minute); logs.Len() == 0; {
				select {
				case <-limit:
					t.Fatal("it says nothing")
				case <-time.After(time.Millisecond):
				}
			}
			if logs.Len() != 1 {
				t.Errorf("it says %v, want one warning", logs.All())
			}
		})
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	tracer, stop, err := traces.Open(config.Config{}, "one", zap.NewNop())
	if stop(); tracer != nil || err != nil {
		t.Errorf("tracer %v, %v; want none", tracer, err)
	}
}
