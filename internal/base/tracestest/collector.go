// Package tracestest runs an OpenTelemetry collector for tests. It records the spans that arrive,
// and the attributes of the process that sent them. It stores no timings and checks nothing itself.
package tracestest

import (
	"context"
	"maps"
	"net"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Collector accepts spans until its test ends. It is safe for concurrent use.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	Address string // host:port

	mu      sync.Mutex
	spans   map[string]int
	process map[string]string
}

// Start returns a collector that listens on a free local port.
func Start(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Address: l.Addr().String(), spans: map[string]int{}, process: map[string]string{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); err != nil {
			t.Error(err)
		}
	})
	// Serve must have returned before the test ends, because it reports errors through t.
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return c
}

// Export records the spans of one request. It implements the collector's gRPC service.
func (c *Collector) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range req.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			c.process[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans[s.GetName()]++
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans returns the number of spans for each name.
func (c *Collector) Spans() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.spans)
}

// Process returns the resource attributes received so far. A later process overwrites an earlier
// one's.
func (c *Collector) Process() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.process)
}
