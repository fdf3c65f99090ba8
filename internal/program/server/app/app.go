// Package app is the server process of a service. It serves the service's API in all versions, on
// the stack of the active version. Services call it through package dbcontroller at the root.
//
// A vrunner.Runner stands in front of the handlers, a view of each version's namespace behind them,
// and etcd holds the server's registration. The server continues without etcd. Its knowledge may
// then be outdated, and the database refuses writes that rest on it.
//
// The package does not own flags (see package cli) or the handlers of a service. Begin to read at
// App.Serve, and at App.Run for programs with an http.Server of their own.
//
// It is not for users and may change with any version.
package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"

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
	"dbcontroller.dev/internal/engine/sink"
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
	// here is empty without copies of other regions' records.
	Stack func(version string, views map[string]*vrunner.View, here Regions, opts ...connect.HandlerOption) vrunner.Stack
	// Kinds lists the kinds of each version. A version without an entry may have any kinds.
	Kinds map[string][]string
	// Indexes lists the indexed fields by version and kind.
	Indexes map[string]map[string][]string
	// Search lists what is searchable, by version and kind. Engine opens the indexes; nil: none.
	Search map[string]map[string]Searched
	Engine sink.Engine
	// Copied lists what is copied from other regions, by version and kind.
	Copied map[string]map[string]Copied
	// Front puts REST in front of everything that serves calls. nil: nothing.
	Front func(next http.Handler) http.Handler
	// Watches mounts handlers in front of the runner, which outlive a flip. nil mounts none.
	Watches func(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption)

	here Regions // set by New
}

// Options are settings of the command line, beyond the configuration.
type Options struct {
	ID             string // unique among live servers
	Listen         string // address of the APIs
	OperatorListen string
	Insecure       bool // allow other machines to connect without TLS or identities
	// Listening, if not nil, is called with both addresses once the ports are open.
	Listening func(api, operator string)
	// Wrap, if not nil, wraps the client of a version's database. Tests use it to stop a server at
	// a chosen point.
	Wrap func(version string, c record.Client) record.Client
}

// App is one server. New makes it, and one of Serve and Run runs it, once.
type App struct {
	cfg     config.Config
	service Service
	opts    Options
	log     *zap.Logger
	lock    *door.Lock
	start   map[string][]record.Record // configured fixtures, by API version
	usage   *apiversion.Usage
	// warnings describe the insecurity of Handler and Operator.
	warnings []string
	runner   atomic.Pointer[vrunner.Runner] // nil until the server runs
	ready    atomic.Pointer[func() error]   // nil until the server runs
	search   atomic.Pointer[search]         // nil until the server runs, and without indexes
	life
}

// New checks the configuration and makes a server. It opens nothing, neither ports nor connections.
// Databases of versions that the service does not serve are ignored with a warning.
func New(cfg config.Config, service Service, opts Options, log *zap.Logger) (*App, error) {
	a := &App{cfg: cfg, service: service, opts: opts, log: log.With(zap.String("server", opts.ID)), life: newLife(),
		usage: apiversion.NewUsage(apiversion.UsageConfig{Services: service.APIs})}
	a.cfg.DBs = nil
	var unserved []string
	for _, db := range cfg.DBs {
		if slices.Contains(service.Versions, db.APIVersion) {
			a.cfg.DBs = append(a.cfg.DBs, db)
			continue
		}
		unserved = append(unserved, db.APIVersion)
	}
	if len(a.cfg.DBs) == 0 {
		return nil, fmt.Errorf("dbs: no entry has a version that this program serves (%s): correct apiVersion in %s",
			strings.Join(service.Versions, ", "), filepath.Base(cfg.Path))
	}
	var err error
	if a.start, err = fixtures(a.cfg.DBs, service.Kinds); err != nil {
		return nil, err
	}
	if err = a.checkSearch(); err != nil {
		return nil, err
	}
	if a.service.here, err = a.regions(); err != nil {
		return nil, err
	}
	if a.lock, err = lock.New(a.cfg.Access, opts.Insecure, a.log); err != nil {
		return nil, err
	}
	// A newer build serves these versions. No switch goes to a version that a live server lacks.
	for _, version := range unserved {
		a.log.Warn("the configuration has a version that this program does not serve: no switch to it begins while this server runs",
			zap.String("version", version), zap.Strings("served", service.Versions))
	}
	service.warnOfReads(a.log)
	return a, nil
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

// door returns the settings of the API's listener or handler.
func (a *App) door() door.Config {
	return door.Config{What: "API port", Address: a.opts.Listen, Flag: "--listen", Lock: a.lock, Table: Table(a.service.APIs),
		// The service may mount further routes, which the access table cannot list.
		Absent: apiversion.NewRange(a.service.APIs, nil).Refusal, Rest: access.Application, Unencrypted2: true,
		Connections: limits.ServerConnections, Requests: limits.ServerRequests, BodyBytes: limits.ServerRequestBytes,
		BodiesBytes: requestsBytes(debug.SetMemoryLimit(-1)), Log: a.log}
}

// requestsBytes returns the memory of all requests. limit is the Go runtime's (GOMEMLIMIT), or
// math.MaxInt64 without one. Half of it is for requests: the rest is for the process itself, its
// indexes and connections, and for garbage.
func requestsBytes(limit int64) int64 {
	return max(limits.LeastRequestsBytes, min(limits.ServerRequestsBytes, limit/2))
}

// operator returns the content of the operator port.
func (a *App) operator() (adminport.Config, adminport.Content) {
	return adminport.Config{Address: a.opts.OperatorListen, Profiles: a.cfg.Profiles, Lock: a.lock, Log: a.log},
		adminport.Content{Ready: a.Ready, Pages: append(Pages(a.usage), searchPages(a.search.Load)...), Metrics: []prometheus.Collector{&metrics{runner: a.runner.Load}, searchMetrics{a.search.Load}, UsageMetrics(a.usage)}}
}

// Ready returns nil if the server can serve, and otherwise the reason.
func (a *App) Ready() error {
	ready := a.ready.Load()
	switch {
	case a.refuses():
		return errStopped
	case ready == nil:
		return errNotRunning
	}
	return (*ready)()
}

// Serve opens the ports of the options and serves until ctx ends. It then returns nil.
func (a *App) Serve(ctx context.Context, connect Connect) error {
	return a.once(ctx, connect, func(ctx context.Context, store coord.Store) error {
		api, err := door.Open(a.door())
		if err != nil {
			return err
		}
		defer api.Close() //nolint:errcheck // closed by the server as well
		cfg, content := a.operator()
		port, err := adminport.Listen(cfg, content)
		if err != nil {
			return err
		}
		defer port.Close() //nolint:errcheck // closed by the server as well
		// Both ports are open: nothing was announced in etcd that cannot be reached.
		a.log.Info("server runs", zap.String("api", api.Addr()), zap.String("operator", port.Addr()))
		if a.opts.Listening != nil {
			a.opts.Listening(api.Addr(), port.Addr())
		}
		return a.run(ctx, store, append(api.Warnings(), port.Warnings()...), func(ctx context.Context, h http.Handler) error {
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return port.Run(ctx) })
			g.Go(func() error { return api.Serve(ctx, h) })
			return g.Wait()
		})
	})
}

// run does the work of a server until ctx ends, and then until serve returns. serve answers requests
// with h until its ctx ends, and returns when they have finished.
func (a *App) run(ctx context.Context, store coord.Store, warnings []string, serve func(ctx context.Context, h http.Handler) error) error {
	deployments := deployment.New(store, a.cfg.Deployment, deployment.Config{Log: a.log})
	set := databases.New(a.cfg, databases.Config{App: a.service.Name, Checks: []databases.Check{databases.Belongs(deployments)}, Log: a.log})
	defer set.Close(context.WithoutCancel(ctx))
	presence := deployment.NewPresence(deployments)
	search := a.newSearch(set, deployments)
	a.search.Store(search)
	copies, err := a.newCopies(store, set, deployments)
	if err != nil {
		return err
	}
	defer copies.close()
	moves := a.newMoves(copies)
	var prepares func() map[string]string
	if search != nil || copies != nil {
		prepares = func() map[string]string { return both(search.prepares(), copies.prepares()) }
	}
	runner := vrunner.New(struct {
		*deployment.Store
		*deployment.Presence
	}{deployments, presence}, a.reached(set, deployments, search), moves.stacks(a.service.starting(a.start)), vrunner.Config{ID: a.opts.ID, Lead: a.lead(store, deployments),
		Usage: a.usage.Totals, Keys: set.KeysHere, Prepares: prepares, Copies: copies.reporter(), Moves: moves.reporter(), Forward: copies.forwarder(), Warnings: func() []string { return warnings }}, zaplog.New(a.log))
	isReady := func() error {
		if err := ready(runner, deployments, set); err != nil {
			return err
		}
		return copies.ready(ctx, runner.State().Active)
	}
	a.runner.Store(runner)
	a.ready.Store(&isReady)

	// The work outlives ctx until the last request has finished: a held write still needs the gate
	// to open, and every request its database.
	work, halt := context.WithCancel(context.WithoutCancel(ctx))
	defer halt()
	g, work := errgroup.WithContext(work)
	g.Go(func() error { return runner.Run(work) })
	g.Go(func() error { return presence.Run(work) })
	g.Go(func() error { return a.open(work, deployments, set) })
	if search != nil {
		g.Go(func() error { return search.run(work, deployments) })
	}
	if copies != nil {
		g.Go(func() error { return copies.run(work) })
	}
	g.Go(func() error {
		defer halt()
		serving, stop := context.WithCancel(ctx)
		defer stop()
		// Requests need the work, so its failure ends them.
		defer context.AfterFunc(work, stop)()
		// A stream has no end of its own to wait for.
		defer context.AfterFunc(serving, runner.EndStreams)()
		return serve(serving, a.handler(runner))
	})
	err = g.Wait()
	switch {
	case errors.Is(err, context.Canceled):
		return nil // the ordinary end
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		a.log.Warn("the server ends, and requests still run", zap.Error(err))
		return nil
	}
	return err
}

// reached returns the databases as the runner uses them, by version.
func (a *App) reached(set *databases.Set, deployments *deployment.Store, search *search) map[string]vrunner.Database {
	out := map[string]vrunner.Database{}
	for _, db := range a.cfg.DBs {
		ns := set.Database(db.Version)
		var client record.Client = ns.Client()
		if a.opts.Wrap != nil {
			client = a.opts.Wrap(db.Version, client)
		}
		out[db.Version] = vrunner.Database{Client: client, Watcher: ns.Watcher(deployments), ReadsAsList: db.MajorityReads,
			Indexed: a.service.Indexes[upgradestate.APIVersion(db.Version)], Search: search.searcher(db.Version)}
	}
	return out
}

// lead elects one server to run controllers that must run once.
func (a *App) lead(store coord.Store, deployments *deployment.Store) func(context.Context, string, func(context.Context) error) error {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
		return shards.Lead(ctx, store, deployments.Root()+"/service/"+name, a.opts.ID, a.log, work)
	}
}

// bounded limits requests after decompression, and leaves small responses uncompressed.
var bounded = connect.WithHandlerOptions(connect.WithReadMaxBytes(limits.ServerRequestBytes), connect.WithCompressMinBytes(limits.CompressBytes))

// Bounded returns the stack of a version. Its responses carry VersionHeader, and its handlers limit
// the size of requests.
func (svc Service) Bounded(version string, views map[string]*vrunner.View) vrunner.Stack {
	s := svc.Stack(version, views, svc.here, bounded)
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

// handler serves the API. Watches stand in front of the runner and survive a flip; the runner
// serves the rest. usage counts calls by version, those by REST as well.
func (a *App) handler(r *vrunner.Runner) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", r)
	if a.service.Watches != nil {
		a.service.Watches(mux, r, bounded)
	}
	counted := a.usage.Handler(mux)
	if a.service.Front == nil {
		return counted
	}
	return a.service.Front(counted)
}
