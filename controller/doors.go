package controller

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dbcontroller/deployment/api"
)

// Doors are what a controller listens at. They are open before it runs, so that nothing has
// been done where an address is taken, and the caller's to close.
type Doors interface {
	// Run answers for the process itself, its health and its metrics, until ctx ends.
	Run(ctx context.Context) error
	// Serve answers the Deployment API until ctx ends.
	Serve(ctx context.Context, api *api.Service) error
	// Warnings say what is insecure about them.
	Warnings() []string
	// Addresses are where they listen, for the log.
	Addresses() []zap.Field
}

// Metrics are the controller's, for Prometheus.
func (a *App) Metrics() prometheus.Collector { return &metrics{app: a} }

// closed are the doors of a controller that nobody calls, as of a rehearsal.
type closed struct{}

func (closed) Run(ctx context.Context) error                   { return wait(ctx) }
func (closed) Serve(ctx context.Context, _ *api.Service) error { return wait(ctx) }
func (closed) Warnings() []string                              { return nil }
func (closed) Addresses() []zap.Field                          { return nil }

func wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
