package controller

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/metrics"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/record"
)

// Backend opens the databases of a controller. The controller does not know where they are: the
// program uses MongoDB and etcd, a simulation uses memory.
type Backend interface {
	// Connect returns a connection for each database, by version. It opens none of them: each is
	// opened when first used. The caller calls disconnect after its last use.
	Connect(dbs []Database, o Opening) (connections map[string]Connection, disconnect func(context.Context))
	// Unavailable reports whether a database error is temporary: the same command may succeed
	// later.
	Unavailable(err error) bool
	// Unprivileged reports whether a database error means that the login lacks a privilege.
	Unprivileged(err error) bool
}

// Scratcher is a Backend that can create temporary databases next to the configured ones, on the
// same server under other names.
type Scratcher interface {
	// CheckScratch checks whether a scratch database could be used. It changes nothing there.
	CheckScratch(ctx context.Context, db Database) error
	// ClaimScratch creates an empty scratch database. It refuses a database that others made.
	ClaimScratch(ctx context.Context, db Database) error
	// DropScratch drops a database that ClaimScratch made. A missing database is no error.
	DropScratch(ctx context.Context, db Database) error
}

// Opening holds the options for opening databases.
type Opening struct {
	// Check runs when a database first answers, before any other use. If it returns
	// record.ErrUnavailable, the backend retries. Any other error refuses the database. Nil accepts
	// every database.
	Check func(ctx context.Context, version string, db record.Namespace) error
	// Quiet asks that the work does not disturb other clients of the servers.
	Quiet bool
	Log   *zap.Logger
}

// Connection is one database that opens on first use. If it cannot be opened, its commands fail
// with the reason. A Connection may also implement record.Monitor, preflight.Surveyor,
// preflight.Sharder, preflight.Holder, clearer, closer and rehearsal.Clients.
type Connection interface {
	Space
	// Open tries to open the database. Shortly after a failed attempt it does not try again, and
	// returns the error of that attempt.
	Open(ctx context.Context) error
	// Opened reports whether the database is open.
	Opened() bool
	// Problem returns why the database is not open. It returns nil if the database is open or if
	// nothing has tried to open it yet.
	Problem() error
	// Keep retries until the database is open or ctx ends, whatever the error.
	Keep(ctx context.Context) error
	// Quietly returns the same database, used so that other clients of its server are not
	// disturbed.
	Quietly() Space
}

// Space is a namespace that can also drop scratch collections by name prefix, including those that
// a dead process left behind.
type Space interface {
	record.Namespace
	Sweep(ctx context.Context, prefix string) error
}

// Doors are the listeners of a controller. The caller opens them before Run, so that an occupied
// address fails before the controller changes anything. The caller also closes them.
type Doors interface {
	// Run serves health and metrics of the process until ctx ends.
	Run(ctx context.Context) error
	// Serve serves the Deployment API until ctx ends.
	Serve(ctx context.Context, api *api.Service) error
	// Warnings lists insecure settings of the listeners.
	Warnings() []string
	// Addresses lists the listening addresses, for the log.
	Addresses() []zap.Field
}

// Metrics returns the Prometheus metrics of this controller and of the whole deployment. All of
// them carry the deployment's name as a label.
func (a *App) Metrics() prometheus.Collector {
	return prometheus.WrapCollectorWith(prometheus.Labels{"deployment": a.cfg.Deployment}, metrics.Of(metrics.Source{
		Deployments: a.deployment, Ready: a.Ready, Leads: a.leading.Load, Stages: a.engines.Stages, Progress: a.engines.Progress,
		Hooks: a.hooks.Stats, Waits: a.waits, BackAway: a.wayBack.BackAway, Rollouts: a.knownRollouts, Shards: a.cfg.ShardMetrics,
	}))
}

// closed is the Doors of a controller without listeners, as in a rehearsal.
type closed struct{}

func (closed) Run(ctx context.Context) error                   { return wait(ctx) }
func (closed) Serve(ctx context.Context, _ *api.Service) error { return wait(ctx) }
func (closed) Warnings() []string                              { return nil }
func (closed) Addresses() []zap.Field                          { return nil }

func wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
