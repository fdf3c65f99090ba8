package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/transform/lens"
)

// Run runs the demo and prints the result. An error means that the demo could not finish.
// Result.Err judges the result of a finished one.
func Run(ctx context.Context, o Options) (Result, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return Result{}, err
	}
	l, err := newLayout()
	if err != nil {
		return Result{}, err
	}
	r := &run{Options: o, layout: l, begun: time.Now(), people: o.Stdout, http: httpClient(o)}
	r.services, r.application = newDeployments()
	// Standard output is for the JSON object only.
	if o.JSON {
		r.people = o.Stderr
	}
	result, err := r.demo(ctx)
	kept := err == nil && o.Keep
	if kept {
		r.lookAround()
	}
	if err != nil && ctx.Err() == nil {
		r.showLogs(err)
	}
	if err == nil && o.Hold && !kept {
		err = result.print(o.Stdout, o.JSON)
		r.say("everything stays open until you press Ctrl-C")
		<-ctx.Done()
		r.cleanUp(ctx, false)
		return result, err
	}
	// Show logs first: the clean-up removes them.
	r.cleanUp(ctx, kept)
	if ctx.Err() != nil {
		return result, errors.New("demo: interrupted; everything was stopped and removed")
	}
	if err != nil {
		return result, fmt.Errorf("demo: %w", err)
	}
	return result, result.print(o.Stdout, o.JSON)
}

// showLogs prints the end of the failed process's log, or of all logs if no process is known to
// have failed. The clean-up removes the logs.
func (r *run) showLogs(err error) {
	failed := r.children()
	var exit *exitError
	if errors.As(err, &exit) {
		failed = []*child{exit.child}
	}
	for _, c := range failed {
		fmt.Fprintf(r.Stderr, "the end of the log of %s:\n%s\n", c.name, subprocess.Tail(c.log, 15))
	}
}

// httpClient returns a client with a connection for every demo client, so that none waits for
// another.
func httpClient(o Options) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 4*o.Writers + 16
	t.MaxIdleConns = 0
	return &http.Client{Transport: t}
}

// run is one demo.
type run struct {
	Options
	layout layout
	begun  time.Time
	http   *http.Client

	printing sync.Mutex
	people   io.Writer

	backends              *backends
	host                  *child // hosts the backends of a kept demo
	services, application *deployed
	servers               []*child      // of the services
	proxies               []*child      // of the application
	mongo                 *mongo.Client // for loading and checks
	app                   *mongo.Client // of the application, through the proxies
	etcd                  *etcdcoord.Store
}

// deployments returns both deployments.
func (r *run) deployments() []*deployed { return []*deployed{r.services, r.application} }

// say prints a line with the time since the start.
func (r *run) say(format string, args ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Fprintf(r.people, "%6.2fs  %s\n", time.Since(r.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (r *run) note(text string) { r.say("%s", text) }

func (r *run) demo(ctx context.Context) (Result, error) {
	if err := r.startBackends(ctx); err != nil {
		return Result{}, err
	}
	t := newTraffic(r)
	var err error
	// The collection exists before the controllers, as with an existing application.
	if t.hot, err = loadPackages(ctx, r.mongo.Database(r.layout.oldDB), r.Records, t.packages); err != nil {
		return Result{}, err
	}
	r.say("%d records are in the application's collection %s", r.Records, packagesKind)
	if err := r.startProcesses(ctx); err != nil {
		return Result{}, err
	}
	lens, err := lens.Parse(lensFile, lensText)
	if err != nil {
		return Result{}, err
	}
	t.shapes = shapes{lens}
	defer func() { t.cells.stopAll() }()
	if err := t.prepare(ctx); err != nil {
		return Result{}, err
	}
	r.say("%d processes and as many secrets are in the services' database, in etcd", t.stored())
	// Traffic, upgrades and switches. Everything before is preparation, everything after is
	// judgement.
	u, err := r.upgrade(ctx, t)
	if err != nil {
		return Result{}, err
	}
	return r.judge(ctx, t, u)
}

// children returns all running processes of the demo.
func (r *run) children() []*child {
	all := slices.Concat(r.servers, r.proxies, r.services.controllers, r.application.controllers)
	if r.host != nil {
		all = append(all, r.host)
	}
	return all
}

// judge checks all data and builds the result.
func (r *run) judge(ctx context.Context, t *traffic, u upgraded) (Result, error) {
	r.say("looking every acknowledged write up")
	f := newFindings(r.note)
	active := r.services.after.CurrentVersion
	// Cells write through the API. They must stop before the data is checked.
	if err := t.cells.settle(ctx, f, r.say); err != nil {
		return Result{}, err
	}
	if err := r.checkServices(ctx, t, f); err != nil {
		return Result{}, err
	}
	db := r.mongo.Database(r.layout.newDB)
	if active == oldVersion {
		db = r.mongo.Database(r.layout.oldDB)
	}
	if err := checkPackages(ctx, db, active, t.packages, f); err != nil {
		return Result{}, err
	}
	res := Result{
		Backend: "mongodb " + r.backends.Version, Active: active, Shards: ringSize,
		Controllers: controllerCount, Servers: len(r.servers), Proxies: len(r.proxies),
		CopyDocsPerSecond: u.copyRate, Lost: f.lost(), Duplicated: f.duplicated(), Resurrected: f.resurrected(),
		Late: len(f.late), LateMillis: f.lateFor.Milliseconds(), Fence: map[string]string{}, Engines: map[string][]string{},
		WritesAcked: len(t.tally.writes), WritesFailed: t.tally.failed, Reads: t.tally.reads, ReadsFailed: t.tally.readsFailed,
		Verified: Verified{Parked: u.parked}, CellCrashes: t.cells.crashes,
	}
	r.say("comparing all data through the transform, both ways")
	for _, d := range r.deployments() {
		registry, err := r.Transformers(d.config)
		if err != nil {
			return Result{}, err
		}
		c, err := compare(ctx, d.config, registry, d.after, r.note)
		if err != nil {
			return Result{}, err
		}
		res.Records += c.records
		res.Verified.Compared += c.compared
		res.Verified.Mismatched += c.mismatched
		maps.Copy(res.Fence, fences(d.after))
		for _, kind := range d.kinds {
			res.Engines[kind] = d.engines()
		}
	}
	// The result shows the worst switch; the list has all of them.
	for _, s := range u.switches {
		p := s.pause(t.tally.writes)
		res.Switches = append(res.Switches, Switch{From: s.from, To: s.to, WritePause: p, Phases: s.phases})
		if len(res.Switches) == 1 || p.Max > res.WritePause.Max {
			res.WritePause, res.Phases = p, s.phases
		}
	}
	return res, nil
}

// openEtcd connects to etcd, to watch the deployments.
func (r *run) openEtcd(ctx context.Context) error {
	var err error
	if r.etcd, err = etcdcoord.Open(ctx, etcdcoord.Config{Endpoints: r.backends.Etcd}); err != nil {
		return err
	}
	for _, d := range r.deployments() {
		d.record = deployment.New(r.etcd, d.deployment, deployment.Config{})
		d.line = newTimeline(func(text string) { r.say("%s: %s", d.name, text) })
	}
	return nil
}
