package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/control/controller/metrics"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// steady is how long a deployment must have run for its next failure to be a new one.
const steady = time.Minute

// member is one deployment of a Fleet. Its controller is made anew after each failure.
type member struct {
	fleet    *Fleet
	settings controller.Settings
	registry *transform.Registry
	options  controller.Options
	backend  backend
	down     *api.Service // answers while no controller runs
	record   func(context.Context) (upgradestate.Deployment, error)
	tried    atomic.Bool // the first start is over
	log      *zap.Logger

	mu      sync.Mutex
	app     *controller.App      // nil while none runs
	metrics prometheus.Collector // of app
	failed  error                // of the latest controller; nil: none failed yet
}

// run runs a controller until ctx ends, and another one after each failure.
func (m *member) run(ctx context.Context, d *doors) error {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(time.Minute), backoff.WithMaxElapsedTime(0))
	for {
		leave, err := m.fleet.starts.admit(ctx, m.record)
		if err != nil {
			return err
		}
		begun := time.Now()
		err = m.runOnce(ctx, d, leave)
		if ctx.Err() != nil {
			return err
		}
		if err == nil {
			err = errors.New("its controller has ended")
		}
		m.end(err)
		if time.Since(begun) > steady {
			wait.Reset()
		}
		again := wait.NextBackOff()
		m.log.Error("the controller of a deployment has failed and is started again", zap.Error(err), zap.Duration("in", again))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// runOnce runs a controller until it fails or ctx ends. It calls leave when the start is over.
func (m *member) runOnce(ctx context.Context, d *doors, leave func()) error {
	app := controller.New(m.settings, m.registry, m.fleet.store, m.backend, m.options, m.fleet.log)
	m.begin(app)
	var starting sync.WaitGroup
	defer starting.Wait()
	starting.Go(func() {
		<-app.Started()
		m.tried.Store(true)
		leave()
	})
	return app.Run(ctx, memberDoors{d, m})
}

func (m *member) begin(app *controller.App) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.app, m.metrics = app, app.Metrics()
}

func (m *member) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.app, m.metrics, m.failed = nil, nil, err
}

// why returns the reason why no controller runs, or nil if one does.
func (m *member) why() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.app != nil:
		return nil
	case m.failed != nil:
		return fmt.Errorf("it has failed and is started again: %w", m.failed)
	default:
		return fmt.Errorf("it has not started yet: this process starts %d deployments at a time", startsAtOnce)
	}
}

func (m *member) ready() error {
	m.mu.Lock()
	app := m.app
	m.mu.Unlock()
	if app == nil {
		return m.why()
	}
	return app.Ready()
}

// waits is api.Config.Waits of the Service that answers while no controller runs.
func (m *member) waits() []upgradestate.Blocker {
	err := m.why()
	if err == nil {
		return nil
	}
	b := upgradestate.BlockerOf(upgradestate.BlockController, err)
	b.Place.Controller = m.options.ID
	b.Text = fmt.Sprintf("controller %s: %s", m.options.ID, strings.ReplaceAll(b.Text, "\n", "; "))
	return []upgradestate.Blocker{b}
}

// starting is api.Config.Starting of that Service.
func (m *member) starting(string) string {
	if err := m.why(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return ""
}

// Describe implements prometheus.Collector. It describes nothing, because the controller changes.
func (m *member) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *member) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	now := m.metrics
	m.mu.Unlock()
	if now == nil {
		now = metrics.Down(m.settings.Deployment)
	}
	now.Collect(ch)
}

// memberDoors are the listeners of a Fleet for one of its deployments.
type memberDoors struct {
	*doors
	member *member
}

var _ controller.Doors = memberDoors{}

// Run waits: the Fleet runs the listeners.
func (memberDoors) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Serve makes service answer about the deployment until ctx ends.
func (d memberDoors) Serve(ctx context.Context, service *api.Service) error {
	d.member.fleet.service.Set(service)
	defer d.member.fleet.service.Set(d.member.down)
	<-ctx.Done()
	return ctx.Err()
}
