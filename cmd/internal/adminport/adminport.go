// Package adminport is the operator port that every process has: /healthz, /readyz (which
// says what it waits for), Prometheus /metrics, and pprof where that is asked for. It
// listens on loopback unless told otherwise, and shows nothing that is secret. Health and
// metrics can have a port of their own, for probes and Prometheus.
package adminport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/access"
	"dbcontroller.dev/access/door"
)

// Config is how the port is reached.
type Config struct {
	Address  string
	Metrics  string // address for health and metrics alone; empty: none
	Profiles bool   // pprof
	Lock     *door.Lock
	Log      *zap.Logger
}

// Page is one that a process has of its own.
type Page struct {
	Path    string // answered to GET
	Least   access.Role
	Handler http.Handler
}

// Port serves one process's operator port.
type Port struct {
	door    *door.Door
	mux     *http.ServeMux
	metrics *door.Door // nil: none
	health  *http.ServeMux
}

// Paths are what the mux of a port answers, for the test of its table.
func Paths(profiles bool, pages ...Page) access.Table {
	t := access.Health
	if profiles {
		t = t.With(access.Profiles)
	}
	for _, p := range pages {
		t = t.With(access.Table{p.Path: {Least: p.Least}})
	}
	return t
}

// Listen opens the port. ready returns nil when the process does its work, and otherwise
// what it waits for.
func Listen(cfg Config, ready func() error, pages []Page, cs ...prometheus.Collector) (*Port, error) {
	reg := prometheus.NewRegistry()
	for _, c := range append(cs, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("operator port: metrics: %w", err)
		}
	}
	p := &Port{mux: http.NewServeMux(), health: http.NewServeMux()}
	for _, mux := range []*http.ServeMux{p.mux, p.health} {
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
		mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answerReady(w, r, ready()) })
		mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 10}))
	}
	for _, page := range pages {
		p.mux.Handle("GET "+page.Path, page.Handler)
	}
	if cfg.Profiles {
		p.mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		p.mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		p.mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		p.mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		p.mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	var err error
	p.door, err = door.Open(door.Config{What: "operator port", Address: cfg.Address, Flag: "--operator-listen",
		Lock: cfg.Lock, Table: Paths(cfg.Profiles, pages...), Log: cfg.Log})
	if err != nil || cfg.Metrics == "" {
		return p, err
	}
	p.metrics, err = door.Open(door.Config{What: "port for health and metrics", Address: cfg.Metrics, Flag: "operator.metrics",
		Lock: cfg.Lock, Table: access.Health, Log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, p.door.Close())
	}
	return p, nil
}

// answerReady says what is waited for to those who may see the deployment, and to others
// only that something is.
func answerReady(w http.ResponseWriter, r *http.Request, waiting error) {
	caller, _ := access.CallerOf(r.Context())
	switch {
	case waiting == nil:
		fmt.Fprintln(w, "ready")
	case caller.May(access.Viewer):
		http.Error(w, waiting.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, "not ready", http.StatusServiceUnavailable)
	}
}

// Addr is where the port listens.
func (p *Port) Addr() string { return p.door.Addr() }

// MetricsAddr is where health and metrics are alone; empty: nowhere.
func (p *Port) MetricsAddr() string {
	if p.metrics == nil {
		return ""
	}
	return p.metrics.Addr()
}

// Warnings say what is insecure about the ports; nothing, while there is no port.
func (p *Port) Warnings() []string {
	if p == nil {
		return nil
	}
	return append(p.door.Warnings(), p.metrics.Warnings()...)
}

// Close closes ports that do not serve.
func (p *Port) Close() error {
	if p.metrics == nil {
		return p.door.Close()
	}
	return errors.Join(p.door.Close(), p.metrics.Close())
}

// Run serves until ctx ends.
func (p *Port) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.door.Serve(ctx, p.mux) })
	if p.metrics != nil {
		g.Go(func() error { return p.metrics.Serve(ctx, p.health) })
	}
	return g.Wait()
}
