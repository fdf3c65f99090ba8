// Package app is the server process of a service. It serves the service's API in all versions, on
// the stack of the active version. Services call it through package dbcontroller at the root.
//
// A vrunner.Runner stands in front of the handlers, a view of each version's namespace behind them,
// and etcd holds the server's registration. The server continues without etcd. Its knowledge may
// then be outdated, and the database refuses writes that rest on it.
//
// The package does not own flags (see package cli) or the handlers of a service. Begin to read at
// App.Run.
//
// It is not for users and may change with any version.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/program/adminport"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/lock"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// VersionHeader is the response header that names the version whose stack answered.
const VersionHeader = "Dbcontroller-Version"

// Service describes the service that a server runs.
type Service struct {
	Name     string // name of this process in the logs of database servers
	Versions []string
	APIs     []protoreflect.ServiceDescriptor // of all versions
	// Stack builds the handlers and background work of a version. It passes opts to each handler.
	Stack func(version string, views map[string]*vrunner.View, opts ...connect.HandlerOption) vrunner.Stack
	// Kinds lists the kinds of each version. A version without an entry may have any kinds.
	Kinds map[string][]string
	// Indexes lists the indexed fields by version and kind.
	Indexes map[string]map[string][]string
	// Watches mounts handlers in front of the runner, which outlive a flip. nil mounts none.
	Watches func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption)
}

// Options are settings of the command line, beyond the configuration.
type Options struct {
	ID             string // unique among live servers
	Listen         string // address of the APIs
	OperatorListen string
	Insecure       bool // allow other machines to connect without TLS or identities
	// Listening, if not nil, is called with both addresses once the ports are open.
	Listening func(api, operator string)
	// RequestsBytes limits the total memory of all requests, in bytes. Tests set a smaller limit. 0
	// means limits.ServerRequestsBytes.
	RequestsBytes int64
	// Wrap, if not nil, wraps the client of a version's database. Tests use it to stop a server at
	// a chosen point.
	Wrap func(version string, c record.Client) record.Client
}

// App is one server process.
type App struct {
	cfg     config.Config
	service Service
	opts    Options
	store   coord.Store
	log     *zap.Logger
}

// New makes a server. The caller closes the coordination store. Databases of versions that the
// service does not serve are ignored with a warning.
func New(cfg config.Config, service Service, store coord.Store, opts Options, log *zap.Logger) *App {
	a := &App{cfg: cfg, service: service, opts: opts, store: store, log: log.With(zap.String("server", opts.ID))}
	a.cfg.DBs = nil
	for _, db := range cfg.DBs {
		if slices.Contains(service.Versions, db.APIVersion) {
			a.cfg.DBs = append(a.cfg.DBs, db)
			continue
		}
		// A newer build serves this version. No switch goes to a version that a live server lacks.
		a.log.Warn("the configuration has a version that this program does not serve: no switch to it begins while this server runs",
			zap.String("version", db.APIVersion), zap.Strings("served", service.Versions))
	}
	return a
}

// Table returns the access rules of the API: every method of the service requires the role of an
// application.
func Table(apis []protoreflect.ServiceDescriptor) access.Table {
	t := access.Table{}
	for _, s := range apis {
		t["/"+string(s.FullName())+"/"] = access.Row{Least: access.Application}
	}
	return t
}

// Pages returns the pages of the operator port that only servers have.
func Pages(usage http.Handler) []adminport.Page {
	return []adminport.Page{{Path: "/usage", Least: access.Viewer, Handler: usage}}
}

// Run serves until ctx ends and then returns nil.
func (a *App) Run(ctx context.Context) error {
	if len(a.cfg.DBs) == 0 {
		return fmt.Errorf("dbs: no entry has a version that this program serves (%s): correct apiVersion in %s",
			strings.Join(a.service.Versions, ", "), filepath.Base(a.cfg.Path))
	}
	a.service.warnOfReads(a.log)
	start, err := fixtures(a.cfg.DBs, a.service.Kinds)
	if err != nil {
		return err
	}
	lock, err := lock.New(a.cfg.Access, a.opts.Insecure, a.log)
	if err != nil {
		return err
	}
	api, err := door.Open(door.Config{What: "API port", Address: a.opts.Listen, Flag: "--listen", Lock: lock, Table: Table(a.service.APIs),
		// The service may mount further routes, which the access table cannot list.
		Absent: apiversion.NewRange(a.service.APIs, nil).Refusal, Rest: access.Application, Unencrypted2: true,
		Connections: limits.ServerConnections, Requests: limits.ServerRequests, BodyBytes: limits.ServerRequestBytes,
		BodiesBytes: cmp.Or(a.opts.RequestsBytes, limits.ServerRequestsBytes), Log: a.log})
	if err != nil {
		return err
	}
	defer api.Close() //nolint:errcheck // closed by the server as well
	deployments := deployment.New(a.store, a.cfg.Deployment, deployment.Config{Log: a.log})
	set := databases.New(a.cfg, databases.Config{App: a.service.Name, Checks: []databases.Check{databases.Belongs(deployments)}, Log: a.log})
	defer set.Close(ctx)
	reached := map[string]vrunner.Database{}
	for _, db := range a.cfg.DBs {
		ns := set.Database(db.Version)
		var client record.Client = ns.Client()
		if a.opts.Wrap != nil {
			client = a.opts.Wrap(db.Version, client)
		}
		reached[db.Version] = vrunner.Database{Client: client, Watcher: ns.Watcher(deployments), ReadsAsList: db.MajorityReads,
			Indexed: a.service.Indexes[upgradestate.APIVersion(db.Version)]}
	}
	presence := deployment.NewPresence(deployments)
	usage := apiversion.NewUsage(apiversion.UsageConfig{Services: a.service.APIs})
	var port *adminport.Port // opened before the server announces itself
	runner := vrunner.New(struct {
		*deployment.Store
		*deployment.Presence
	}{deployments, presence}, reached, a.service.starting(start), vrunner.Config{ID: a.opts.ID, Lead: a.lead(deployments), Usage: usage.Totals, Keys: set.KeysHere,
		Warnings: func() []string { return slices.Concat(api.Warnings(), port.Warnings()) }}, zaplog.New(a.log))
	port, err = adminport.Listen(adminport.Config{Address: a.opts.OperatorListen, Profiles: a.cfg.Profiles, Lock: lock, Log: a.log},
		func() error { return ready(runner, deployments, set) }, Pages(usage), Metrics(runner), UsageMetrics(usage))
	if err != nil {
		return err
	}
	defer port.Close() //nolint:errcheck // closed by the server as well
	// Both ports are open: nothing was announced in etcd that cannot be reached.
	a.log.Info("server runs", zap.String("api", api.Addr()), zap.String("operator", port.Addr()))
	if a.opts.Listening != nil {
		a.opts.Listening(api.Addr(), port.Addr())
	}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return runner.Run(ctx) })
	g.Go(func() error { return presence.Run(ctx) })
	g.Go(func() error { return a.open(ctx, deployments, set) })
	g.Go(func() error { return port.Run(ctx) })
	g.Go(func() error { return api.Serve(ctx, a.handler(runner, usage)) })
	// A cancelled context is the ordinary end.
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// lead elects one server to run controllers that must run once.
func (a *App) lead(deployments *deployment.Store) func(context.Context, string, func(context.Context) error) error {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return shards.Lead(ctx, a.store, deployments.Root()+"/service/"+name, a.opts.ID, a.log, work)
	}
}

// bounded limits requests after decompression, and leaves small responses uncompressed.
var bounded = connect.WithHandlerOptions(connect.WithReadMaxBytes(limits.ServerRequestBytes), connect.WithCompressMinBytes(limits.CompressBytes))

// Bounded returns the stack of a version. Its responses carry VersionHeader, and its handlers limit
// the size of requests.
func (svc Service) Bounded(version string, views map[string]*vrunner.View) vrunner.Stack {
	s := svc.Stack(version, views, bounded)
	inner := s.Handler
	if inner == nil {
		return s // background work only
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(VersionHeader, version)
		inner.ServeHTTP(w, r)
	})
	return s
}

// starting returns Bounded with the configured fixtures of each version.
func (svc Service) starting(fixtures map[string][]record.Record) func(string, map[string]*vrunner.View) vrunner.Stack {
	return func(version string, views map[string]*vrunner.View) vrunner.Stack {
		s := svc.Bounded(version, views)
		s.Fixtures = slices.Concat(s.Fixtures, fixtures[version])
		return s
	}
}

// Metrics returns the server's Prometheus metrics.
func Metrics(r *vrunner.Runner) prometheus.Collector { return &metrics{runner: r} }

// metrics collects the state of the runner.
type metrics struct{ runner *vrunner.Runner }

var (
	activeVersion = prometheus.NewDesc("dbcontroller_server_active_version", "1 for the version that serves requests.", []string{"version"}, nil)
	heldWrites    = prometheus.NewDesc("dbcontroller_server_held_writes", "Writes that the gate holds.", nil, nil)
	gateOpen      = prometheus.NewDesc("dbcontroller_server_gate_open", "1 while the gate lets writes pass.", nil, nil)
	controllers   = prometheus.NewDesc("dbcontroller_server_controllers", "Controllers of the service that run here.", nil, nil)
	overdue       = prometheus.NewDesc("dbcontroller_server_controllers_overdue", "Controllers that must stop after a switch and still run.", nil, nil)
	restarts      = prometheus.NewDesc("dbcontroller_server_controller_restarts_total", "Restarts of controllers that failed or panicked.", nil, nil)
	holdSeconds   = prometheus.NewDesc("dbcontroller_server_hold_seconds", "Time for which the latest switch or attempt held writes, or has held them until now; 0: none.", nil, nil)
	restartMillis = prometheus.NewDesc("dbcontroller_server_restart_milliseconds", "Time from the detection of the latest flip to the release of writes.", nil, nil)
)

func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.runner.State()
	// Before the first deployment is read there is no active version to show.
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

// handler serves the API. Watches stand in front of the runner and survive a flip; the runner
// serves the rest. usage counts calls by version.
func (a *App) handler(r *vrunner.Runner, usage *apiversion.Usage) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", r)
	if a.service.Watches != nil {
		a.service.Watches(mux, r, bounded)
	}
	return usage.Handler(mux)
}
