// Package adminport is the operator port of every process: /healthz, /readyz with the reason for
// not being ready, Prometheus /metrics, and pprof if configured. It shows no secrets. Health and
// metrics can have a port of their own, for probes and Prometheus.
//
// The package does not own the checks on callers (package door) or the metrics themselves.
package adminport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
)

// Config sets the addresses and the content of the port.
type Config struct {
	Address  string
	Metrics  string // address for health and metrics only; empty: none
	Flag     string // sets Address, in messages; empty: --operator-listen
	Profiles bool   // pprof
	Lock     *door.Lock
	Log      *zap.Logger
}

// Page is an additional page of a process.
type Page struct {
	Path    string // answers GET, or POST if it Changes
	Least   access.Role
	Changes bool // the call changes something or loads databases; the audit records it
	Handler http.Handler
}

// Port is the operator port of one process.
type Port struct {
	door    *door.Door
	mux     *http.ServeMux
	metrics *door.Door // nil: none
	health  *http.ServeMux
}

// Paths returns the access table of a port. A test compares it with the paths that the mux serves.
func Paths(profiles bool, pages ...Page) access.Table {
	t := access.Health
	if profiles {
		t = t.With(access.Profiles)
	}
	for _, p := range pages {
		t = t.With(access.Table{p.Path: {Least: p.Least, Changes: p.Changes}})
	}
	return t
}

// Content is what a port shows.
type Content struct {
	Ready   func() error // returns nil if the process can work, and otherwise the reason
	Pages   []Page
	Metrics []prometheus.Collector
}

// Listen opens the port. The caller calls Run, or Close without Run.
func Listen(cfg Config, content Content) (*Port, error) {
	p := &Port{}
	var err error
	if p.mux, p.health, err = content.muxes(cfg.Profiles); err != nil {
		return nil, err
	}
	p.door, err = door.Open(cfg.door(content))
	if err != nil || cfg.Metrics == "" {
		return p, err
	}
	p.metrics, err = door.Open(door.Config{What: "port for health and metrics", Address: cfg.Metrics, Flag: "operator.metrics",
		Lock: cfg.Lock, Table: access.Health, Log: cfg.Log})
	if err != nil {
		// Do not leak the first listener if the second fails.
		return nil, errors.Join(err, p.door.Close())
	}
	return p, nil
}

// Handler returns the pages of a port for an http.Server of the program (door.Handler).
func Handler(cfg Config, content Content) (h http.Handler, warnings []string, err error) {
	mux, _, err := content.muxes(cfg.Profiles)
	if err != nil {
		return nil, nil, err
	}
	return door.Handler(cfg.door(content), mux)
}

// door returns the settings of the port's listener or handler.
func (cfg Config) door(content Content) door.Config {
	return door.Config{What: "operator port", Address: cfg.Address, Flag: cmp.Or(cfg.Flag, "--operator-listen"),
		Lock: cfg.Lock, Table: Paths(cfg.Profiles, content.Pages...), Log: cfg.Log}
}

// muxes returns all pages, and those for probes and Prometheus alone.
func (c Content) muxes(profiles bool) (all, health *http.ServeMux, err error) {
	reg := prometheus.NewRegistry()
	for _, m := range append(slices.Clone(c.Metrics), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := reg.Register(m); err != nil {
			return nil, nil, fmt.Errorf("operator port: metrics: %w", err)
		}
	}
	all, health = http.NewServeMux(), http.NewServeMux()
	// Health and metrics are on both ports, so that probes keep working without the second one.
	for _, mux := range []*http.ServeMux{all, health} {
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
		mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answerReady(w, r, c.Ready()) })
		// The limit keeps slow clients from piling up scrapes.
		mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 10}))
	}
	for _, page := range c.Pages {
		method := http.MethodGet
		if page.Changes {
			method = http.MethodPost
		}
		all.Handle(method+" "+page.Path, page.Handler)
	}
	if profiles {
		all.HandleFunc("GET /debug/pprof/", pprof.Index)
		all.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		all.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		all.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		all.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return all, health, nil
}

// answerReady shows the reason only to callers with the role of a viewer. Others learn only that
// the process is not ready.
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

// Addr returns the address of the port.
func (p *Port) Addr() string { return p.door.Addr() }

// MetricsAddr returns the address of the port for health and metrics, or "" if there is none.
func (p *Port) MetricsAddr() string {
	if p.metrics == nil {
		return ""
	}
	return p.metrics.Addr()
}

// Warnings returns insecure settings of the ports. A nil Port has none.
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
