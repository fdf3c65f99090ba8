package controller

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dbcontroller.dev/deployment/api"
	"dbcontroller.dev/record"
)

// Backend opens the databases of a controller. It is all that a controller knows of where
// they are: MongoDB and etcd in the program, memory in a simulation.
type Backend interface {
	// Connect makes databases known, by version. None is opened before something needs it.
	// The caller calls disconnect when nothing uses them any longer.
	Connect(dbs []Database, o Opening) (connections map[string]Connection, disconnect func(context.Context))
	// Unavailable reports whether an error of a database, of whatever command, passes by
	// itself: the same command may succeed later.
	Unavailable(err error) bool
	// Unprivileged reports whether an error of a database is that of a login that lacks a
	// privilege.
	Unprivileged(err error) bool
}

// Scratcher is a Backend that can make whole databases for a while, next to those of the
// settings: on the same server, by another name.
type Scratcher interface {
	// CheckScratch tries whether a scratch database could be used. It leaves what it finds.
	CheckScratch(ctx context.Context, db Database) error
	// ClaimScratch makes a scratch database, empty. What others have made is refused.
	ClaimScratch(ctx context.Context, db Database) error
	// DropScratch drops a database that ClaimScratch has made. One that is not there is fine.
	DropScratch(ctx context.Context, db Database) error
}

// Opening says how databases are opened.
type Opening struct {
	// Check is asked of a database that has answered, before anything else uses it; nil: it
	// is taken as it is. An error that is record.ErrUnavailable is tried again, another one
	// refuses the database.
	Check func(ctx context.Context, version string, db record.Namespace) error
	// Quiet: nobody else on the servers may feel what is done there.
	Quiet bool
	Log   *zap.Logger
}

// Connection is the way to one database. Its commands open the database where it is not open
// yet, and fail with the reason where it cannot be. It may have further abilities:
// record.Monitor, preflight.Surveyor, preflight.Sharder, preflight.Holder, clearer, closer, and rehearsal.Clients.
type Connection interface {
	Space
	// Open makes an attempt where there was none lately, and otherwise returns why the latest
	// one failed.
	Open(ctx context.Context) error
	// Opened reports whether the database is open.
	Opened() bool
	// Problem returns why it is not open, as far as somebody tried; nil if it is open, or
	// nobody needed it yet.
	Problem() error
	// Keep tries to open it until it is open or ctx ends, whatever the reason.
	Keep(ctx context.Context) error
	// Quietly returns the same database, used so that nobody else on its server feels it.
	Quietly() Space
}

// Space is a namespace that can be rid of scratch collections by the beginning of their
// names, also of those that a process that died has left.
type Space interface {
	record.Namespace
	Sweep(ctx context.Context, prefix string) error
}

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

// Metrics are the controller's, for Prometheus: its own, and those of the whole deployment.
// All have the deployment's name as a label.
func (a *App) Metrics() prometheus.Collector {
	return prometheus.WrapCollectorWith(prometheus.Labels{"deployment": a.cfg.Deployment}, together{&metrics{app: a}, &whole{app: a}})
}

// together are collectors as one.
type together []prometheus.Collector

func (t together) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range t {
		c.Describe(ch)
	}
}

func (t together) Collect(ch chan<- prometheus.Metric) {
	for _, c := range t {
		c.Collect(ch)
	}
}

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
