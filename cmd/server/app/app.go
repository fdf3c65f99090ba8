// Package app is the sample API server process: the BBS service and the secrets, in both
// their versions, on the stack of the active version.
//
// It shows how a service embeds dbcontroller: a vrunner.Runner in front of the handlers,
// a view of each version's namespace behind them, a registration in etcd beside. The
// service keeps serving when etcd is gone; what it then may not know, the database
// refuses.
package app

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/access"
	"dbcontroller.dev/access/door"
	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/cmd/internal/adminport"
	"dbcontroller.dev/cmd/internal/databases"
	"dbcontroller.dev/cmd/internal/lock"
	"dbcontroller.dev/config"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/limits"
	"dbcontroller.dev/record"
	"dbcontroller.dev/sample/bbs"
	"dbcontroller.dev/sample/secrets"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/vrunner"
)

// VersionHeader names, in each response, the version whose stack answered.
const VersionHeader = "Dbcontroller-Version"

// Options are what the command line says beyond the configuration.
type Options struct {
	ID             string // of this server; unique among those alive
	Listen         string // address of the APIs
	OperatorListen string
	Insecure       bool // listen where others can reach it without TLS or identities
	// DeleteExpired is how long after their expiry secrets are deleted. 0: never.
	DeleteExpired time.Duration
	// Wrap, if not nil, stands between the server and a version's database. Tests stop a
	// server with it at a chosen place.
	Wrap func(version string, c record.Client) record.Client
}

// App is one server process.
type App struct {
	cfg   config.Config
	opts  Options
	store coord.Store
	log   *zap.Logger
}

// New makes a server. The coordination store is the caller's to close.
func New(cfg config.Config, store coord.Store, opts Options, log *zap.Logger) *App {
	return &App{cfg: cfg, opts: opts, store: store, log: log.With(zap.String("server", opts.ID))}
}

// Table is what a server's clients may call: all of the service, as applications.
func Table() access.Table {
	t := access.Table{}
	for _, s := range append(bbs.Services(), secrets.Services()...) {
		t["/"+string(s.FullName())+"/"] = access.Row{Least: access.Application}
	}
	return t
}

// Pages are those of the operator port that only a server has.
func Pages(usage http.Handler) []adminport.Page {
	return []adminport.Page{{Path: "/usage", Least: access.Viewer, Handler: usage}}
}

// Run serves until ctx ends, which is no error.
func (a *App) Run(ctx context.Context) error {
	lock, err := lock.New(a.cfg.Access, a.opts.Insecure, a.log)
	if err != nil {
		return err
	}
	api, err := door.Open(door.Config{What: "API port", Address: a.opts.Listen, Flag: "--listen", Lock: lock, Table: Table(), Unencrypted2: true,
		Connections: limits.ServerConnections, Requests: limits.ServerRequests, BodyBytes: limits.ServerRequestBytes,
		BodiesBytes: limits.ServerRequestsBytes, Log: a.log})
	if err != nil {
		return err
	}
	defer api.Close() //nolint:errcheck // closed by the server as well
	deployments := deployment.New(a.store, a.cfg.Deployment, deployment.Config{Log: a.log})
	set := databases.New(a.cfg, databases.Config{App: "bbs-server", Checks: []databases.Check{databases.Belongs(deployments)}, Log: a.log})
	defer set.Close(ctx)
	reached := map[string]vrunner.Database{}
	for _, db := range a.cfg.DBs {
		ns := set.Database(db.Version)
		var client record.Client = ns.Client()
		if a.opts.Wrap != nil {
			client = a.opts.Wrap(db.Version, client)
		}
		reached[db.Version] = vrunner.Database{Client: client, Watcher: ns.Watcher(deployments)}
	}
	presence := deployment.NewPresence(deployments)
	usage := bbs.Usage(apiversion.UsageConfig{Services: secrets.Services()})
	var port *adminport.Port // open before anything is announced
	runner := vrunner.New(struct {
		*deployment.Store
		*deployment.Presence
	}{deployments, presence}, reached, a.stack, vrunner.Config{ID: a.opts.ID, Lead: a.lead(deployments), Usage: usage.Totals,
		Warnings: func() []string { return slices.Concat(api.Warnings(), port.Warnings()) }}, a.log)
	port, err = adminport.Listen(adminport.Config{Address: a.opts.OperatorListen, Profiles: a.cfg.Profiles, Lock: lock, Log: a.log},
		func() error { return ready(runner, deployments, set) }, Pages(usage), Metrics(runner), usage)
	if err != nil {
		return err
	}
	defer port.Close() //nolint:errcheck // closed by the server as well
	a.log.Info("server runs", zap.String("api", api.Addr()), zap.String("operator", port.Addr()))

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return runner.Run(ctx) })
	g.Go(func() error { return presence.Run(ctx) })
	g.Go(func() error { return a.open(ctx, deployments, set) })
	g.Go(func() error { return port.Run(ctx) })
	g.Go(func() error { return api.Serve(ctx, handler(runner, usage)) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// lead elects the servers that run controllers of which one is enough.
func (a *App) lead(deployments *deployment.Store) func(context.Context, string, func(context.Context) error) error {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return shards.Lead(ctx, a.store, deployments.Root()+"/service/"+name, a.opts.ID, a.log, work)
	}
}

// bounded refuses messages that are larger than any request may be once they are decompressed.
var bounded = connect.WithReadMaxBytes(limits.ServerRequestBytes)

// stack builds what belongs to a version: both sample services side by side.
func (a *App) stack(version string, views map[string]*vrunner.View) vrunner.Stack {
	process, secret := http.NotFoundHandler(), http.NotFoundHandler()
	var janitor vrunner.Controller
	switch version {
	case bbs.V1:
		process = bbs.StackV1(vrunner.StoreOf(views[bbs.V1]), vrunner.StoreOf(views[bbs.V2]), bounded)
		secret = secrets.StackV1(vrunner.StoreOf(views[secrets.V1]), vrunner.StoreOf(views[secrets.V2]), bounded)
		janitor = secrets.JanitorV1(vrunner.StoreOf(views[secrets.V1]), a.opts.DeleteExpired)
	case bbs.V2:
		process = bbs.StackV2(vrunner.StoreOf(views[bbs.V2]), bounded)
		secret = secrets.StackV2(vrunner.StoreOf(views[secrets.V2]), bounded)
		janitor = secrets.JanitorV2(vrunner.StoreOf(views[secrets.V2]), a.opts.DeleteExpired)
	}
	both := http.NewServeMux()
	both.Handle("/", process)
	for _, s := range secrets.Services() {
		both.Handle("/"+string(s.FullName())+"/", secret)
	}
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(VersionHeader, version)
		both.ServeHTTP(w, r)
	})
	// What is a read of neither service may write.
	s := vrunner.Stack{Handler: named, Write: func(r *http.Request) bool { return bbs.IsWrite(r.URL.Path) && secrets.IsWrite(r.URL.Path) }}
	if a.opts.DeleteExpired > 0 && janitor.Run != nil {
		s.Controllers = append(s.Controllers, janitor)
	}
	return s
}

// Metrics are those of a server, for Prometheus.
func Metrics(r *vrunner.Runner) prometheus.Collector { return &metrics{runner: r} }

// metrics shows the runner's state.
type metrics struct{ runner *vrunner.Runner }

var (
	activeVersion = prometheus.NewDesc("dbcontroller_server_active_version", "1 for the version whose stack serves.", []string{"version"}, nil)
	heldWrites    = prometheus.NewDesc("dbcontroller_server_held_writes", "Writes that wait for the gate.", nil, nil)
	gateOpen      = prometheus.NewDesc("dbcontroller_server_gate_open", "1 while writes pass.", nil, nil)
	controllers   = prometheus.NewDesc("dbcontroller_server_controllers", "Controllers of the service that run here.", nil, nil)
	overdue       = prometheus.NewDesc("dbcontroller_server_controllers_overdue", "Controllers that a switch has ended and that have not stopped.", nil, nil)
	restarts      = prometheus.NewDesc("dbcontroller_server_controller_restarts_total", "Controllers that failed or panicked and were run again.", nil, nil)
	holdSeconds   = prometheus.NewDesc("dbcontroller_server_hold_seconds", "How long writes were held for the latest switch or attempt at one, or are held by now; 0: never.", nil, nil)
	restartMillis = prometheus.NewDesc("dbcontroller_server_restart_milliseconds", "From seeing the latest flip to letting writes go.", nil, nil)
)

func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.runner.State()
	if s.Active != "" {
		ch <- prometheus.MustNewConstMetric(activeVersion, prometheus.GaugeValue, 1, s.Active)
	}
	open := 0.0
	if m.runner.GateOpen() {
		open = 1
	}
	ch <- prometheus.MustNewConstMetric(gateOpen, prometheus.GaugeValue, open)
	ch <- prometheus.MustNewConstMetric(heldWrites, prometheus.GaugeValue, float64(s.Held))
	ch <- prometheus.MustNewConstMetric(holdSeconds, prometheus.GaugeValue, m.runner.Hold().Seconds())
	c := m.runner.Controllers()
	ch <- prometheus.MustNewConstMetric(controllers, prometheus.GaugeValue, float64(c.Running))
	ch <- prometheus.MustNewConstMetric(overdue, prometheus.GaugeValue, float64(c.Overdue))
	ch <- prometheus.MustNewConstMetric(restarts, prometheus.CounterValue, float64(c.Restarts))
	ch <- prometheus.MustNewConstMetric(restartMillis, prometheus.GaugeValue, float64(s.RestartMillis))
}

// handler serves the API: watches go on over a flip, in front of the runner, and all else
// is the runner's. usage counts who calls which version.
func handler(r *vrunner.Runner, usage *apiversion.Usage) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", r)
	bbs.MountWatches(mux, r, bounded)
	secrets.MountWatches(mux, r, bounded)
	return usage.Handler(mux)
}
