package app

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/forward"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/program/adminport"
	"dbcontroller.dev/internal/program/lock"
	"dbcontroller.dev/internal/program/page"
)

// doors are the listeners of a controller.
type doors struct {
	audit *access.Audit
	api   *door.Door
	apps  *door.Door // calls of applications only; nil: served with the API
	page  *page.Page // for operators, with the API; nil: none
	port  *adminport.Port

	others    *forward.Others
	record    *deployment.Store // of any deployment of the process
	announces deployment.Addressed
}

func (a *App) open() (*doors, error) {
	return open(a.cfg, a.opts, a.store, []string{a.cfg.Deployment}, adminport.Content{Ready: a.controller.Ready, Metrics: []prometheus.Collector{a.controller.Metrics()}}, a.log)
}

// open opens the listeners of a process with some deployments.
func open(cfg config.Config, opts Options, store coord.Store, deployments []string, content adminport.Content, log *zap.Logger) (*doors, error) {
	lock, err := lock.New(cfg.Access, opts.Insecure, log)
	if err != nil {
		return nil, err
	}
	d := &doors{
		audit: lock.Audit, record: deployment.New(store, cfg.Deployment, deployment.Config{Log: log}),
		announces: deployment.Addressed{ID: opts.ID, Address: cfg.Address, Deployments: deployments, Build: opts.Build.Version},
	}
	if d.others, err = forward.Open(othersOf(cfg, opts.ID, log)); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(cfg.Path), err)
	}
	calls, pages := access.Calls, []string(nil)
	if cfg.Page && !opts.NoPage {
		if d.page, err = page.New(cfg.Controllers); err != nil {
			return nil, err
		}
		calls, pages = calls.With(page.Paths), cfg.Controllers
	}
	d.api, err = door.Open(door.Config{What: "API port", Address: opts.APIListen, Flag: "--api-listen",
		Lock: lock, Table: calls, Pages: pages, Log: log})
	if err == nil && opts.AppsListen != "" {
		d.apps, err = door.Open(door.Config{What: "port for applications", Address: opts.AppsListen, Flag: "--applications-listen",
			Lock: lock, Table: access.Calls.Only(access.Application), Log: log})
	}
	// Open every listener before the controller starts, so that a wrong address changes nothing.
	if err == nil {
		d.port, err = adminport.Listen(adminport.Config{Address: opts.OperatorListen, Metrics: cfg.Metrics, Profiles: cfg.Profiles,
			Lock: lock, Log: log}, content)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

var _ controller.Doors = (*doors)(nil)

func (d *doors) Run(ctx context.Context) error { return d.port.Run(ctx) }

func (d *doors) Serve(ctx context.Context, service *api.Service) error {
	return d.serve(ctx, api.NewSeveral(service))
}

// serve serves the API until ctx ends.
func (d *doors) serve(ctx context.Context, service *api.Several) error {
	mux := http.NewServeMux()
	mux.Handle(api.NewHandlerOf(service, forward.NewHandler(service, d.others), connect.WithInterceptors(access.NewInterceptor(access.Calls, d.audit))))
	if d.page != nil {
		d.page.Register(mux)
	}
	// If one listener fails, stop the other: half of an API would look healthy.
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.api.Serve(ctx, mux) })
	if d.apps != nil {
		g.Go(func() error { return d.apps.Serve(ctx, mux) })
	}
	g.Go(func() error {
		d.others.Run(ctx, d.record)
		return nil
	})
	if d.announces.Address != "" {
		presence := deployment.NewPresence(d.record)
		_ = presence.AnnounceAddress(ctx, d.announces) // as soon as there is a lease
		g.Go(func() error {
			_ = presence.Run(ctx) // it ends with ctx
			return nil
		})
	}
	return g.Wait()
}

func (d *doors) close() {
	for _, door := range []*door.Door{d.api, d.apps} {
		if door != nil {
			_ = door.Close() // it may be closed already
		}
	}
	if d.port != nil {
		_ = d.port.Close()
	}
}

func (d *doors) Warnings() []string {
	return slices.Concat(d.api.Warnings(), d.apps.Warnings(), d.port.Warnings())
}

func (d *doors) Addresses() []zap.Field {
	at := []zap.Field{zap.String("api", d.api.Addr()), zap.String("operator", d.port.Addr())}
	if d.apps != nil {
		at = append(at, zap.String("applications", d.apps.Addr()))
	}
	if m := d.port.MetricsAddr(); m != "" {
		at = append(at, zap.String("metrics", m))
	}
	return at
}
