package vrunner

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// Protocol is what this package speaks; upgrades need at least upgradestate.MinProtocol
// of every server.
const Protocol = 1

// Deployments is what a server needs of the Deployment.
type Deployments interface {
	// Get reads the record linearizably.
	Get(ctx context.Context) (upgradestate.Deployment, error)
	// Watch delivers the newest record whenever it changed, beginning with the present
	// one. The channel is closed when ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	// Announce publishes this server's state under its lease.
	Announce(ctx context.Context, s upgradestate.ServerState) error
}

// Database is how a server reaches the database of one version.
type Database struct {
	Client record.Client
	// Watcher is for View.Changes, which fails without it.
	Watcher record.Watcher
	// ReadsAsList: for a request that only reads, Get and Select are as recent as a list
	// (record.Client), which costs less. What writes, a stream and a controller read as ever.
	ReadsAsList bool
	// Indexed are the declared fields of each kind, by which records are read where the database has
	// the index (record.KindSpec.Indexed). Nil: none are.
	Indexed map[string][]string
}

// Stack serves one version. Handler gets requests of every API version; Write
// reports which of them write. Both are nil in a process that has controllers only.
type Stack struct {
	Handler http.Handler
	Write   func(*http.Request) bool
	// Stream reports which requests are answered with a stream; nil: none. Their responses
	// are sent as they are written and their contexts end at a flip, with ErrFlipped. To
	// let a watch go on over the flip, mount a WatchHandler in front of the Runner.
	Stream func(*http.Request) bool
	// Controllers are the version's background work.
	Controllers []Controller
	// Fixtures are records that the version starts with: Kind, Key and Doc. They are
	// created when the version becomes active for the first time, never before, and once in
	// the life of its namespace: one that is there already (a copy, or a client's) is left
	// alone, and one that was deleted does not come back. A list that changes later is not
	// made again. Database.Client must be a record.OnceClient.
	Fixtures []record.Record
}

// Config configures a Runner. Zero values mean the defaults named.
type Config struct {
	ID      string        // of this server
	HoldCap time.Duration // how long a write, or a read of a sealed namespace, may wait; 15 s
	MaxHeld int           // how many writes may wait; 10,000
	MaxBody int64         // largest request body, which is kept to run the request again; 8 MiB
	// MaxHeldBytes is how much the bodies of the writes that wait may come to; 256 MiB.
	MaxHeldBytes int64
	// Lead runs work whenever this process is the leader of what has that name, until ctx
	// ends, and returns what work returns while it leads. The context of work ends when
	// leadership is lost. Needed for controllers with Leader; shards.Lead is one.
	Lead func(ctx context.Context, name string, work func(context.Context) error) error
	// Usage returns how much each API version was called, and since when that was counted.
	// It is asked every 30 s, and announced with the server's state. Nil: nothing is
	// announced.
	Usage func() (since time.Time, used map[string]upgradestate.Usage)
	// Warnings are what is insecure about this process, which is announced with the server's
	// state. Nil: nothing is.
	Warnings func() []string
	// Keys are, by namespace version, the keys that this process can decrypt records
	// with (upgradestate.ServerState.Keys), which are announced likewise. Nil: it has none.
	Keys func() map[string][]string
}

// Runner is an http.Handler that runs the stack of the active version. All its methods may
// be called concurrently.
type Runner struct {
	cfg         Config
	deployments Deployments
	databases   map[string]Database
	hubs        []*hub
	stacks      map[string]Stack
	log         *zap.Logger
	gate        *gate

	mu     sync.Mutex
	record upgradestate.Deployment
	news   chan struct{} // closed and replaced when record changed
	// flipSeen is when a flip was seen whose writes do not pass yet.
	flipSeen time.Time
	restart  int64 // milliseconds of the latest swap
	// streams are those that run, each with what ends its context.
	streams map[*request]context.CancelCauseFunc
	stopped bool            // Run has ended
	term    *term           // of the controllers that run; nil: none do
	seeded  map[string]bool // versions whose fixtures are known to have been made
	warned  string          // the upgrade that this server cannot follow, once it was logged
	waived  uint64          // the epoch in which requests wait no longer for fixtures
	since   string          // of used
	used    map[string]upgradestate.Usage

	running, overdue, restarts atomic.Int64 // controllers
}

// New makes a runner. databases holds that of each namespace, by the name that it has in
// the Deployment: v1, or v1@b for another place of v1. build makes the stack that serves a
// namespace, once for each: it is given the API version, and gets a view of each API
// version.
func New(d Deployments, databases map[string]Database, build func(version string, views map[string]*View) Stack, cfg Config, log *zap.Logger) *Runner {
	if cfg.HoldCap == 0 {
		cfg.HoldCap = 15 * time.Second
	}
	if cfg.MaxHeld == 0 {
		cfg.MaxHeld = 10_000
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 8 << 20
	}
	if cfg.MaxHeldBytes == 0 {
		cfg.MaxHeldBytes = 256 << 20
	}
	r := &Runner{
		cfg: cfg, deployments: d, databases: maps.Clone(databases), stacks: map[string]Stack{}, log: log,
		gate: newGate(cfg), news: make(chan struct{}), streams: map[*request]context.CancelCauseFunc{}, seeded: map[string]bool{},
	}
	views := map[string]*View{}
	for v, db := range r.databases {
		views[v] = &View{runner: r, version: v, client: db.Client, asList: db.ReadsAsList, indexed: db.Indexed}
		if db.Watcher != nil {
			views[v].hub = newHub(v, db.Watcher, log)
			r.hubs = append(r.hubs, views[v].hub)
		}
	}
	for v := range r.databases {
		stack := build(upgradestate.APIVersion(v), byAPIVersion(v, views))
		if stack.Handler == nil {
			stack.Handler = http.NotFoundHandler()
			stack.Write = func(*http.Request) bool { return false }
		}
		r.stacks[v] = stack
	}
	return r
}

// byAPIVersion are the views that the stack of a namespace works with, one for each API
// version: its own; of others the one without a location, or else the first by name.
func byAPIVersion(own string, views map[string]*View) map[string]*View {
	out := map[string]*View{upgradestate.APIVersion(own): views[own]}
	for _, v := range slices.Sorted(maps.Keys(views)) {
		if api := upgradestate.APIVersion(v); out[api] == nil {
			out[api] = views[v]
		}
	}
	return out
}

// Run follows the record until ctx ends: holds, acknowledges, swaps. It also reads the
// changes that handlers follow, makes fixtures, and runs controllers, for whose end it
// waits, though not for ever. It runs once; streams end with it.
func (r *Runner) Run(ctx context.Context) error {
	defer r.stopStreams()
	if err := errors.Join(r.checkControllers(), r.checkFixtures()); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, h := range r.hubs {
		g.Go(func() error { return h.run(ctx) })
		g.Go(func() error { return h.admit(ctx) })
	}
	g.Go(func() error { return r.follow(ctx) })
	g.Go(func() error { return r.acknowledge(ctx) })
	g.Go(func() error { return r.seed(ctx) })
	g.Go(func() error { return r.control(ctx) })
	return g.Wait()
}

func (r *Runner) follow(ctx context.Context) error {
	for d := range r.deployments.Watch(ctx) {
		if old := r.current(); old.Name != "" && d.Epoch != old.Epoch {
			// A new stack starts only on a linearizable read of the flip.
			if fresh, err := r.deployments.Get(ctx); err == nil && fresh.Revision > d.Revision {
				d = fresh
			}
		}
		r.accept(d)
	}
	return ctx.Err()
}

// accept takes a record, unless it is older than the one at hand. The watch brings it, or
// a read that had to ask etcd, which may be first.
func (r *Runner) accept(d upgradestate.Deployment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.Revision <= r.record.Revision {
		return
	}
	if r.record.Name != "" && d.Epoch != r.record.Epoch {
		r.flipSeen = time.Now()
	}
	r.record = d
	r.warn(d)
	r.flipStreams()
	// With the record: nobody may acknowledge a hold before the gate holds.
	r.admit()
}

// admit makes the gate and the controllers follow the present record. r.mu is held.
func (r *Runner) admit() {
	r.endTerm()
	if _, known := r.stacks[r.record.CurrentVersion]; known {
		r.gate.update(r.record, r.starting())
	}
	r.notify()
	if r.GateOpen() {
		r.swapped()
	}
}

// swapped notes how long the swap after a flip took, once. r.mu is held.
func (r *Runner) swapped() {
	if r.flipSeen.IsZero() {
		return
	}
	took := time.Since(r.flipSeen)
	r.flipSeen = time.Time{}
	r.restart = max(1, took.Milliseconds())
	r.notify()
	r.log.Info("stack is swapped", zap.String("version", r.record.CurrentVersion), zap.Uint64("epoch", r.record.Epoch),
		zap.Duration("took", took))
}

// notify wakes all who wait for news. r.mu is held.
func (r *Runner) notify() {
	close(r.news)
	r.news = make(chan struct{})
}

// GateOpen reports whether writes pass now.
func (r *Runner) GateOpen() bool {
	open, _ := r.gate.state()
	return open
}

// Hold returns how long writes were held here for the latest switch or attempt at one, or are
// held by now; 0 if they never were. It is the pause as this server's clients felt it.
func (r *Runner) Hold() time.Duration { return r.gate.hold() }

// Ready returns nil when requests can be served, and otherwise what is missing.
func (r *Runner) Ready() error { return r.serves(r.current()) }

// serves returns nil when requests can be served by the record d.
func (r *Runner) serves(d upgradestate.Deployment) error {
	if d.Name == "" {
		return refusal.Because(refusal.NotReady, "waiting for the Deployment in etcd", nil)
	}
	if decision := r.decide(d); !decision.Role.Serves() {
		return refusal.Because(refusal.ServerTooOld, decision.Reason, nil, refusal.MetaActive, d.CurrentVersion)
	}
	if ns, ok := d.Namespace(d.CurrentVersion); !ok || len(ns.Kinds) == 0 {
		return refusal.Because(refusal.NotReady, "waiting for a controller to make the namespace of "+d.CurrentVersion, nil, refusal.MetaActive, d.CurrentVersion)
	}
	return nil
}

// decide looks up what the table decides for this server: its versions are those that it
// has databases of.
func (r *Runner) decide(d upgradestate.Deployment) upgradestate.Decision {
	return upgradestate.Decide(slices.Sorted(maps.Keys(r.databases)), &d)
}

// warn logs once for each upgrade that this server has to be replaced before the flip.
// r.mu is held.
func (r *Runner) warn(d upgradestate.Deployment) {
	if d.Upgrade == nil || d.Upgrade.ID == r.warned {
		return
	}
	if decision := r.decide(d); decision.Role == upgradestate.ServeUntilFlip {
		r.warned = d.Upgrade.ID
		r.log.Warn("this server is too old for the upgrade that runs", zap.String("reason", decision.Reason))
	}
}

func (r *Runner) current() upgradestate.Deployment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// newer waits for a record newer than a revision: it asks etcd once, for a server may
// have missed the news, and then waits for the watch.
func (r *Runner) newer(ctx context.Context, revision int64) error {
	if d, err := r.deployments.Get(ctx); err == nil {
		r.accept(d)
	}
	for {
		r.mu.Lock()
		now, news := r.record.Revision, r.news
		r.mu.Unlock()
		if now > revision {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}
