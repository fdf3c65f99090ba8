package backfill

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Config configures an Engine. Zero values mean the defaults.
type Config struct {
	Owner   string // this controller's id, for messages
	Workers int    // shards in parallel; default 4
	// Page is the number of records per read; default 500.
	Page int
	// Every is the interval of checkpoints and progress; default 500 ms.
	Every time.Duration
}

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Page == 0 {
		c.Page = 500
	}
	if c.Every == 0 {
		c.Every = 500 * time.Millisecond
	}
	return c
}

// Parts are the dependencies of an Engine. Only Rotation, Pacer and Keys are optional.
type Parts struct {
	Tasks       Tasks
	Rotation    Rotation                       // nil: no encryption keys
	Namespace   func(version string) Namespace // nil for a version that is not configured
	Deployments Deployments
	Journal     Journal
	Ownership   Ownership
	Lease       func() coord.LeaseID // of this controller, for published progress
	Pacer       Pacer                // nil: no limit
	Keys        transform.KeyFinder  // keys of other services' records, for tasks that ask
	Log         *zap.Logger
}

// Engine does this controller's part of the run that the Deployment asks for.
type Engine struct {
	Parts
	cfg     Config
	workers *semaphore.Weighted
	// read counts the records that Pacer does not know yet. All shards share it: the first page of
	// a shard reports the last page of the previous one. Otherwise small shards would escape the
	// limit.
	read atomic.Int64

	mu      sync.Mutex
	record  upgradestate.Deployment
	news    chan struct{} // closed and replaced by each new record
	now     *run
	waits   string // reason why this controller does not work
	problem string // error that the work retries
	gaveUp  string // last error that ended a shard's part

	published Progress // only Run uses it
}

// New returns an engine; Run starts it.
func New(p Parts, cfg Config) *Engine {
	cfg = cfg.withDefaults()
	return &Engine{Parts: p, cfg: cfg, workers: semaphore.NewWeighted(int64(cfg.Workers)), news: make(chan struct{})}
}

// run is this controller's part of a run of a task.
type run struct {
	update upgradestate.Update
	task   transform.Task
	ns     Namespace
	keys   transform.KeyFinder
	plan   Plan
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	shards map[int]*shard // guarded by Engine.mu
	told   atomic.Int64   // failed records in the log
}

// stop ends the work of a run and waits for it. A nil run has none.
func (r *run) stop() {
	if r != nil {
		r.cancel()
		r.wg.Wait()
	}
}

// Run works until ctx ends and then returns nil.
func (e *Engine) Run(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := e.Deployments.Watch(watching)
	tick := time.NewTicker(e.cfg.Every)
	defer tick.Stop()
	// Run must not return while a shard still writes.
	defer func() { e.now.stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, open := <-watch:
			if !open {
				return nil // ctx is ending
			}
			e.setRecord(d)
		case <-e.Ownership.Changes():
		case <-tick.C:
			e.publish(ctx)
		}
		e.look(ctx)
	}
}

// setRecord stores the new record and wakes every awaitPlace.
func (e *Engine) setRecord(d upgradestate.Deployment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.record = d
	close(e.news)
	e.news = make(chan struct{})
}

// look starts and stops work according to the record and the shard ownership.
func (e *Engine) look(ctx context.Context) {
	d := e.record // only Run's goroutine writes it
	u := d.Update
	// The record's pace is for all controllers; this one takes its share of the ring.
	if e.Pacer != nil && d.RingSize > 0 {
		e.Pacer.Set(d.Pace, float64(len(e.Ownership.Owned()))/float64(d.RingSize))
	}
	// The run ended or another one began. Wait for the old one's last writes.
	if e.now != nil && (u == nil || u.Run() != e.now.update.Run()) {
		e.now.stop()
		e.setRun(nil)
	}
	if u == nil {
		e.setWaits("")
		return
	}
	if e.now == nil {
		r, waits, err := e.begin(ctx, d)
		if err != nil && ctx.Err() == nil {
			// The next tick tries again.
			e.Log.Warn("the data update will be retried", zap.String("update", u.Name), zap.Error(err))
			waits = err.Error()
		}
		e.setWaits(waits)
		if r == nil {
			return
		}
		e.setRun(r)
	}
	e.deal(*u)
}

func (e *Engine) setRun(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.problem, e.gaveUp = r, "", ""
}

func (e *Engine) setWaits(waits string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waits != e.waits && waits != "" {
		e.Log.Info("the data update waits", zap.String("for", waits))
	}
	e.waits = waits
}

// begin makes or loads the plan of the record's run. It returns no run and a reason while this
// controller lacks something.
func (e *Engine) begin(ctx context.Context, d upgradestate.Deployment) (r *run, waits string, err error) {
	r = &run{update: *d.Update, keys: e.Keys, shards: map[int]*shard{}}
	var found bool
	if r.plan, found, err = e.Journal.LoadUpdatePlan(ctx, r.update.Run()); err != nil {
		return nil, "", err
	}
	if waits, err = e.choose(ctx, r, found); err == nil && waits == "" && !found {
		r.plan, waits, err = e.makePlan(ctx, d, r)
	}
	if err != nil || waits != "" {
		return nil, waits, err
	}
	// The run outlives this pass; stop ends it.
	r.ctx, r.cancel = context.WithCancel(ctx)
	e.Log.Info("the data update begins here", zap.String("update", r.update.Name), zap.String("id", r.update.Run()), zap.String("kind", r.update.Kind), zap.Int64("records", r.plan.Total))
	return r, "", nil
}

// choose sets the task and the database of a run, or returns what is missing.
func (e *Engine) choose(ctx context.Context, r *run, planned bool) (waits string, err error) {
	u := r.update
	if u.Key != "" {
		if e.Rotation == nil {
			return fmt.Sprintf("controller %s has no keys: configure encryption of %s there", e.cfg.Owner, u.Version), nil
		}
		r.task, r.ns, waits, err = e.Rotation.Begin(ctx, u, planned)
		return waits, err
	}
	r.task, err = e.Tasks.Task(u.Name)
	switch {
	case err != nil:
		return fmt.Sprintf("controller %s has no task %s: deploy it there, or cancel the update", e.cfg.Owner, u.Name), nil //nolint:nilerr // there is none, and that is what is waited for
	// Two revisions of a task in one run would leave the kind half and half.
	case r.task.Hash() != u.Hash:
		return fmt.Sprintf("controller %s has another revision of task %s: deploy the same revision everywhere, or cancel the update and begin it again", e.cfg.Owner, u.Name), nil
	}
	if r.ns = e.Namespace(u.Version); r.ns == nil {
		return fmt.Sprintf("controller %s is not configured for %s", e.cfg.Owner, u.Version), nil
	}
	return "", nil
}

const waitsForPlaces = "the collections of the current version to be open for writes"

// makePlan proposes a plan. The journal returns the first controller's plan to all of them.
func (e *Engine) makePlan(ctx context.Context, d upgradestate.Deployment, r *run) (p Plan, waits string, err error) {
	tok, ok := token(d, r.update.Kind)
	if !ok {
		return p, waitsForPlaces, nil
	}
	// Take the position before the ranges, so that every later read includes all earlier records.
	pos, err := r.ns.Position(ctx)
	if err != nil {
		return p, "", fmt.Errorf("start of the update: %w", err)
	}
	p.Start = pos.At
	if p.Ranges, err = r.ns.Split(ctx, tok, d.RingSize); err != nil {
		return p, "", fmt.Errorf("split %s: %w", tok.Kind, err)
	}
	size, err := r.ns.Size(ctx, tok)
	if err != nil {
		return p, "", err
	}
	p.Total = size.Records
	p, err = e.Journal.CreateUpdatePlan(ctx, d, p)
	return p, "", err
}

// deal starts gained shards and stops lost ones.
func (e *Engine) deal(u upgradestate.Update) {
	owned := e.Ownership.Owned()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.now
	for n, s := range r.shards {
		// A new Create revision means that the lock was lost and won again; checkpoints need the
		// new lock.
		if lock, ok := owned[n]; !ok || lock.Create != s.lock.Create || slices.Contains(u.Done, n) {
			s.cancel()
			delete(r.shards, n)
		}
	}
	for n, lock := range owned {
		if r.shards[n] == nil && !slices.Contains(u.Done, n) {
			r.shards[n] = e.start(r, lock)
		}
	}
}

func (e *Engine) start(r *run, lock shards.Lock) *shard {
	ctx, cancel := context.WithCancel(r.ctx)
	s := &shard{engine: e, run: r, lock: lock, cancel: cancel}
	r.wg.Go(func() {
		defer cancel()
		s.work(ctx)
	})
	return s
}

// Progress returns this controller's part of the run. Without a run its ID is empty.
func (e *Engine) Progress() Progress {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := Progress{Owner: e.cfg.Owner, Waits: e.waits, Problem: e.problem}
	if e.record.Update == nil {
		return Progress{Owner: e.cfg.Owner}
	}
	p.ID = e.record.Update.Run()
	if e.now == nil {
		return p
	}
	p.Total = e.now.plan.Total
	if e.Pacer != nil && p.Waits == "" {
		p.Waits, _ = e.Pacer.Reason()
	}
	for n, s := range e.now.shards {
		// A shard without its checkpoint has no valid counts yet.
		if !s.loaded {
			continue
		}
		sp := ShardProgress{Shard: n, Count: s.at.Count}
		if len(s.at.Examples) > 0 {
			sp.Example = s.at.Examples[0].String()
		}
		p.Shards = append(p.Shards, sp)
	}
	// A fixed order, because publish compares the reports.
	slices.SortFunc(p.Shards, func(a, b ShardProgress) int { return a.Shard - b.Shard })
	return p
}

// publish stores the progress if it has changed.
func (e *Engine) publish(ctx context.Context) {
	p := e.Progress()
	lease := e.Lease()
	// Progress hangs on the lease, so that it disappears with this controller.
	if lease == 0 || reflect.DeepEqual(p, e.published) || p.ID == "" && e.published.ID == "" {
		return
	}
	if err := e.Journal.PublishUpdateProgress(ctx, p, lease); err != nil {
		e.Log.Debug("cannot publish the progress of the data update now", zap.Error(err))
		return
	}
	e.published = p
}
