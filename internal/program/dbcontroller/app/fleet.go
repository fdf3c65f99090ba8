package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/internal/program/adminport"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/transform"
)

// Deployment is the configuration of one deployment of a Fleet, with the transformers of its service.
type Deployment struct {
	Config   config.Config
	Registry *transform.Registry
	Carry    collections.Carries
}

// Fleet runs the controllers of several deployments in one process. They share the listeners, the
// connection to etcd, and the connections to each MongoDB with one connection string. A deployment
// that fails is started again, and does not affect the others.
type Fleet struct {
	cfg     config.Config // of the first deployment; the sections of the process are equal in all
	opts    Options
	store   coord.Store
	service *api.Several
	members []*member
	starts  starts
	log     *zap.Logger // without fields: each controller adds its own
}

// NewFleet returns the fleet of at least one deployment. Each pair of configurations satisfies
// config.Config.SharesProcess. It returns the error of the first configuration that cannot be used, and
// starts nothing.
func NewFleet(deployments []Deployment, store coord.Store, opts Options, log *zap.Logger) (*Fleet, error) {
	f := &Fleet{cfg: deployments[0].Config, store: store, starts: newStarts(), log: log}
	opts.APIListen = cmp.Or(opts.APIListen, f.cfg.API)
	opts.OperatorListen = cmp.Or(opts.OperatorListen, f.cfg.Operator)
	opts.AppsListen = cmp.Or(opts.AppsListen, f.cfg.Applications)
	opts.Aside = func() coord.Store { return memcoord.New() }
	opts.Turns, opts.BeatEvery = throttle.NewTurns(f.cfg.Copy.Deployments), beatEvery(len(deployments))
	opts.Rollouts = deployment.New(store, f.cfg.Deployment, deployment.Config{Log: log}).Rollouts()
	f.opts = opts
	configs := make([]config.Config, len(deployments))
	for i, d := range deployments {
		configs[i] = d.Config
	}
	clients := databases.ClientsOf(configs...)
	services := make([]*api.Service, 0, len(deployments))
	for _, d := range deployments {
		own := log.With(zap.String("controller", opts.ID), zap.String("deployment", d.Config.Deployment))
		set := settings(d.Config, opts.EmbeddedEtcd, own)
		var err error
		if set.Hooks, err = hooksOf(d.Config); err == nil {
			set.RolloutChecks, err = checksOf(d.Config)
		}
		if err != nil {
			return nil, err
		}
		m := &member{fleet: f, settings: set, registry: d.Registry, options: opts.Options, backend: backend{d.Config, clients, own}, log: own}
		m.options.Carry = d.Carry
		record := deployment.New(store, d.Config.Deployment, deployment.Config{Log: log})
		m.record = record.Get
		m.down = api.New(store, record, api.Config{
			Waits: m.waits, Starting: m.starting, RolloutChecks: slices.Collect(maps.Keys(set.RolloutChecks)), Build: opts.Build, Log: own,
		})
		f.members, services = append(f.members, m), append(services, m.down)
	}
	f.service = api.NewSeveral(services...)
	return f, nil
}

// beatEvery returns the interval of the beats with a number of deployments. MongoDB wakes each change
// stream of a server at each write there, and each deployment has two of them. So the cost of beats
// would grow with the square of the number.
func beatEvery(deployments int) time.Duration {
	const each = 50 * time.Millisecond // 40 beats a second in all
	return max(time.Second, min(time.Duration(deployments)*each, 10*time.Second))
}

// Run works until ctx ends, and then returns nil. It returns an error if a listener fails. A failed
// deployment is only retried.
func (f *Fleet) Run(ctx context.Context) error {
	var metrics []prometheus.Collector
	var deployments []string
	for _, m := range f.members {
		metrics, deployments = append(metrics, m), append(deployments, m.settings.Deployment)
	}
	d, err := open(f.cfg, f.opts, f.store, deployments, adminport.Content{Ready: f.Ready, Metrics: metrics}, f.log.With(zap.String("controller", f.opts.ID)))
	if err != nil {
		return err
	}
	defer d.close() // their servers may have closed them already
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Run(ctx) })
	g.Go(func() error { return d.serve(ctx, f.service) })
	for _, m := range f.members {
		g.Go(func() error { return m.down.Run(ctx) })
		g.Go(func() error { return m.run(ctx, d) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Ready returns nil once the start of every deployment is over and one of them works. A deployment
// that fails, or waits for its database, must not keep clients of the others away; its metric
// dbcontroller_controller_ready is 0. But an older process must not end while this one only begins.
func (f *Fleet) Ready() error {
	if n := f.notTried(); n > 0 {
		return fmt.Errorf("%d of %d deployments have not started yet", n, len(f.members))
	}
	var first error
	for _, m := range f.members {
		err := m.ready()
		if err == nil {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("none of %d deployments works; %s: %w", len(f.members), m.settings.Deployment, err)
		}
	}
	return first
}

// notTried returns the number of deployments whose first start is not over.
func (f *Fleet) notTried() (n int) {
	for _, m := range f.members {
		if !m.tried.Load() {
			n++
		}
	}
	return n
}
