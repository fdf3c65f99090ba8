// Package operator is the operator port that every process has: /healthz, /readyz (which
// says what it waits for), Prometheus /metrics and pprof. It listens on loopback unless
// told otherwise, and shows nothing that is secret.
package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Port serves one process's operator port.
type Port struct {
	listener net.Listener
	server   *http.Server
	mux      *http.ServeMux
}

// Listen opens the port. ready returns nil when the process does its work, and otherwise
// what it waits for.
func Listen(addr string, ready func() error, cs ...prometheus.Collector) (*Port, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("operator port: %w; give another address with --operator-listen", err)
	}
	reg := prometheus.NewRegistry()
	for _, c := range append(cs, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := reg.Register(c); err != nil {
			return nil, errors.Join(fmt.Errorf("operator port: metrics: %w", err), l.Close())
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return &Port{listener: l, server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, mux: mux}, nil
}

// Handle adds a page of the process's own, before Run.
func (p *Port) Handle(pattern string, h http.Handler) { p.mux.Handle(pattern, h) }

// Addr is where the port listens.
func (p *Port) Addr() string { return p.listener.Addr().String() }

// Run serves until ctx ends.
func (p *Port) Run(ctx context.Context) error { return Serve(ctx, p.server, p.listener) }

// Serve runs an HTTP server until ctx ends, then lets running requests finish for up to
// five seconds.
func Serve(ctx context.Context, s *http.Server, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.Shutdown(stop); err != nil {
		return errors.Join(fmt.Errorf("shut down %s: %w", l.Addr(), err), s.Close())
	}
	<-served
	return ctx.Err()
}
