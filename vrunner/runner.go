package vrunner

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// Protocol is the protocol version of this package. Upgrades require at least
// upgradestate.MinProtocol of every server.
const Protocol = 1

// Deployments is the access to the Deployment that a server needs.
type Deployments interface {
	// Get reads the record linearizably.
	Get(ctx context.Context) (upgradestate.Deployment, error)
	// Watch delivers the present record and then the newest one after each change. It closes the
	// channel when ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	// Announce publishes this server's state under its lease.
	Announce(ctx context.Context, s upgradestate.ServerState) error
}

// Database is a server's access to the database of one version.
type Database struct {
	Client record.Client
	// Watcher is for View.Changes. Nil makes View.Changes fail.
	Watcher record.Watcher
	// ReadsAsList applies to requests that do not write: their Get and Select are only as recent as
	// a list (record.Client), which costs less. Writing requests, streams and controllers always
	// read linearizably.
	ReadsAsList bool
	// Indexed holds the declared fields of each kind. Records can be read by them if the database
	// has the index (record.KindSpec.Indexed). Nil declares none.
	Indexed map[string][]string
	// Search is the index of the version for full-text search. Nil: it has none.
	Search Searcher
}

// Stack serves one version. Handler gets requests of every API version. Write reports which
// requests write. Both are nil in a process that only runs controllers.
type Stack struct {
	Handler http.Handler
	Write   func(*http.Request) bool
	// Stream reports which requests get a stream as the response. Nil means none. The Runner sends
	// their responses as the handler writes them, and ends their contexts at a flip with
	// ErrFlipped. To continue a watch over the flip, mount the handler of NewWatchHandler in front
	// of the Runner.
	Stream func(*http.Request) bool
	// Controllers are the version's background work.
	Controllers []Controller
	// Observers follow the records of any API version while this version is active.
	Observers []Observation
	// Fixtures are records that the version starts with: Kind, Key and Doc. The Runner creates them
	// when the version becomes active for the first time, and once in the life of its namespace. A
	// record that exists already stays as it is. A deleted one does not return. A later change of
	// the list has no effect. Database.Client must be a record.OnceClient.
	Fixtures []record.Record
}

// Config configures a Runner. Zero values mean the defaults given here.
type Config struct {
	ID      string        // of this server
	HoldCap time.Duration // longest wait of a write, or of a read of a sealed namespace; 15 s
	MaxHeld int           // most writes that wait at the gate; 10,000
	MaxBody int64         // largest request body in bytes, kept for a second run; 8 MiB
	// MaxHeldBytes bounds the total size of the bodies of waiting writes; 256 MiB.
	MaxHeldBytes int64
	// Lead runs work whenever this process leads the election called name, until ctx ends. It
	// returns the result of a run that ends while the process leads. The context of work ends when
	// leadership is lost. Controllers with Leader need it; shards.Lead implements it.
	Lead func(ctx context.Context, name string, work func(context.Context) error) error
	// Usage returns the number of calls of each API version and the start of the count. The Runner
	// reads it every 30 s and announces it with the server's state. Nil announces nothing.
	Usage func() (since time.Time, used map[string]upgradestate.Usage)
	// Warnings returns the insecure settings of this process, which the Runner announces with the
	// server's state. Nil announces none.
	Warnings func() []string
	// Keys returns, for each namespace version, the keys that can decrypt its records in this
	// process (upgradestate.ServerState.Keys). The Runner announces them. Nil announces none.
	Keys func() map[string][]string
	// Prepares returns, for each namespace version, what this process still has to prepare before it
	// can serve that version well. The Runner announces it, and a switch to the version waits. Nil
	// announces nothing.
	Prepares func() map[string]string
	// Copies returns what this process knows about its copies of other regions' records. The Runner
	// announces it. Nil announces none.
	Copies func() []upgradestate.Copies
	// Moves returns the moves of records between regions that this process drives. The Runner announces
	// them with the server's state. Nil announces none.
	Moves func() []upgradestate.Moves
	// Forward sends writes of other regions' records to their owners (Elsewhere). Nil: they are
	// refused.
	Forward Forward
}

// Runner is an http.Handler that runs the stack of the active version. Its methods are safe for
// concurrent use.
type Runner struct {
	cfg         Config
	deployments Deployments
	databases   map[string]Database
	hubs        []*hub
	stacks      map[string]Stack
	log         *slog.Logger
	gate        *gate

	mu     sync.Mutex
	record upgradestate.Deployment
	news   chan struct{} // closed and replaced when record changes
	// flipSeen is the time of the latest flip. It is zero once writes pass again.
	flipSeen time.Time
	activeAt time.Time // when this process learned of the present epoch
	restart  int64     // duration of the latest swap in milliseconds
	// streams holds each running stream with the function that ends its context.
	streams map[*request]context.CancelCauseFunc
	stopped bool            // Run has ended
	term    *term           // of the running controllers; nil: none run
	seeded  map[string]bool // versions whose fixtures exist
	warned  string          // the upgrade id of the latest logged warning
	waived  uint64          // the epoch in which requests no longer wait for fixtures
	since   string          // start of the count in used
	used    map[string]upgradestate.Usage

	running, overdue, restarts atomic.Int64 // controllers
}

// New returns a Runner. databases holds the database of each namespace by its name in the
// Deployment: v1, or v1@b for another place of v1. New calls build once for each namespace, to make
// its stack. build gets the API version of the namespace and one view for each API version. A nil log
// discards.
func New(d Deployments, databases map[string]Database, build func(version string, views map[string]*View) Stack, cfg Config, log *slog.Logger) *Runner {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
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
		views[v] = &View{runner: r, version: v, client: db.Client, asList: db.ReadsAsList, indexed: db.Indexed, search: db.Search}
		// The subscribers of a version share one stream, so each version has one hub.
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

// byAPIVersion returns the views for the stack of a namespace, one for each API version. For its
// own API version that is its own view. For another it is the namespace without a location, or else
// the first by name.
func byAPIVersion(own string, views map[string]*View) map[string]*View {
	out := map[string]*View{upgradestate.APIVersion(own): views[own]}
	for _, v := range slices.Sorted(maps.Keys(views)) {
		if api := upgradestate.APIVersion(v); out[api] == nil {
			out[api] = views[v]
		}
	}
	return out
}

// Run follows the record of the deployment until ctx ends: it holds writes, acknowledges holds, and
// swaps stacks. It also reads the changes for subscriptions, creates fixtures and runs controllers.
// At its end it waits a limited time for controllers and observers to stop, and ends all streams. Run
// can be called once. It returns an error at once if the controllers, observers or fixtures of a stack
// are invalid.
func (r *Runner) Run(ctx context.Context) error {
	defer r.EndStreams()
	observers, err := r.observations()
	if err := errors.Join(r.checkControllers(), r.checkFixtures(), err); err != nil {
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
	for key, leader := range observers {
		g.Go(func() error { return r.observeUntil(ctx, key, leader) })
	}
	return g.Wait()
}

func (r *Runner) follow(ctx context.Context) error {
	for d := range r.deployments.Watch(ctx) {
		if old := r.current(); old.Name != "" && d.Epoch != old.Epoch {
			// A late watch may deliver an old flip, whose stack must not start. Without an answer
			// from etcd the server uses that record, and the database refuses stale tokens.
			if fresh, err := r.deployments.Get(ctx); err == nil && fresh.Revision > d.Revision {
				d = fresh
			}
		}
		r.accept(d)
	}
	return ctx.Err()
}

// accept takes a record unless it is older than the present one. Records come from the watch and
// from direct reads, in any order.
func (r *Runner) accept(d upgradestate.Deployment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// An older record could reopen the gate during a switch.
	if d.Revision <= r.record.Revision {
		return
	}
	if r.record.Name != "" && d.Epoch != r.record.Epoch {
		r.flipSeen = time.Now()
	}
	if r.record.Name == "" || d.Epoch != r.record.Epoch {
		r.activeAt = time.Now()
	}
	r.record = d
	r.warn(d)
	r.flipStreams()
	// The gate must follow under the same lock. Otherwise acknowledge could announce a hold that
	// the gate does not enforce yet.
	r.admit()
}

// admit makes the gate and the controllers follow the present record. The caller holds r.mu.
func (r *Runner) admit() {
	// The term ends before the gate opens, so that no controller of the old term passes it.
	r.endTerm()
	// A server without this version keeps its gate as it is. Its requests fail in serves.
	if _, known := r.stacks[r.record.CurrentVersion]; known {
		r.gate.update(r.record, r.starting())
	}
	r.notify()
	if r.GateOpen() {
		r.swapped()
	}
}

// swapped records the duration of the swap after a flip, once. The caller holds r.mu.
func (r *Runner) swapped() {
	if r.flipSeen.IsZero() {
		return
	}
	took := time.Since(r.flipSeen)
	r.flipSeen = time.Time{}
	// 0 would mean that this server has never swapped.
	r.restart = max(1, took.Milliseconds())
	r.notify()
	r.log.Info("stack is swapped", slog.String("version", r.record.CurrentVersion), slog.Uint64("epoch", r.record.Epoch),
		slog.Duration("took", took))
}

// notify wakes all waiters for news. The caller holds r.mu.
func (r *Runner) notify() {
	close(r.news)
	r.news = make(chan struct{})
}

// GateOpen reports whether writes pass now.
func (r *Runner) GateOpen() bool {
	open, _ := r.gate.state()
	return open
}

// Hold returns how long this server held writes in the latest switch or attempt, or has held them
// so far. It is 0 if the server never held writes. Clients of this server saw a pause of this
// length.
func (r *Runner) Hold() time.Duration { return r.gate.hold() }

// Ready returns nil when the server can serve requests. Otherwise the error states the reason.
func (r *Runner) Ready() error { return r.serves(r.current()) }

// serves returns nil when the server can serve requests under the record d.
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

// decide returns the decision of upgradestate for this server. Its versions are the ones that it
// has databases for.
func (r *Runner) decide(d upgradestate.Deployment) upgradestate.Decision {
	return upgradestate.Decide(slices.Sorted(maps.Keys(r.databases)), &d)
}

// warn logs, once for each upgrade, that this server must be replaced before the flip. The caller
// holds r.mu.
func (r *Runner) warn(d upgradestate.Deployment) {
	if d.Upgrade == nil || d.Upgrade.ID == r.warned {
		return
	}
	if decision := r.decide(d); decision.Role == upgradestate.ServeUntilFlip {
		r.warned = d.Upgrade.ID
		r.log.Warn("this server is too old for the upgrade that runs", slog.String("reason", decision.Reason))
	}
}

func (r *Runner) current() upgradestate.Deployment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// newer waits for a record newer than a revision. It first asks etcd once, because the server may
// have missed a change, and then waits for the watch.
func (r *Runner) newer(ctx context.Context, revision int64) error {
	// Without etcd the watch is the only source. It may deliver the record later.
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
