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

	"dbcontroller.dev/coord"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Config configures an Engine. Zero values mean the defaults named.
type Config struct {
	Owner   string // this controller's id, for people
	Workers int    // shards that are worked on at once; 4
	// Page is how many records are read at once; 500.
	Page int
	// Every is the interval of checkpoints and progress; 500 ms.
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

// Parts are what an Engine works with. All but Rotation, Pacer and Keys are needed.
type Parts struct {
	Tasks       Tasks
	Rotation    Rotation                       // nil: there are no keys
	Namespace   func(version string) Namespace // nil for one that is not configured
	Deployments Deployments
	Journal     Journal
	Ownership   Ownership
	Lease       func() coord.LeaseID // of this controller, for published progress
	Pacer       Pacer                // nil: as fast as it goes
	Keys        transform.KeyFinder  // of other services' records; for tasks that ask
	Log         *zap.Logger
}

// Engine does this controller's part of whatever run the Deployment asks for.
type Engine struct {
	Parts
	cfg     Config
	workers *semaphore.Weighted
	// read is how many records were read that Pacer was not told of. It is of all shards: the
	// last page of one is told with the first of the next, else small shards would go free.
	read atomic.Int64

	mu      sync.Mutex
	record  upgradestate.Deployment
	news    chan struct{} // closed and replaced when the record changed
	now     *run
	waits   string // what keeps this controller from its part
	problem string // an error that work goes on after
	gaveUp  string // the error that ended the part of a shard last

	published Progress // used by Run alone
}

// New makes an engine; Run makes it work.
func New(p Parts, cfg Config) *Engine {
	cfg = cfg.withDefaults()
	return &Engine{Parts: p, cfg: cfg, workers: semaphore.NewWeighted(int64(cfg.Workers)), news: make(chan struct{})}
}

// run is a run of a task, as far as this controller has to do with it.
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
	told   atomic.Int64   // records of which the log says that they are not updated
}

// stop ends the work of a run and waits for it.
func (r *run) stop() {
	if r != nil {
		r.cancel()
		r.wg.Wait()
	}
}

// Run works until ctx ends, which is no error.
func (e *Engine) Run(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := e.Deployments.Watch(watching)
	tick := time.NewTicker(e.cfg.Every)
	defer tick.Stop()
	defer func() { e.now.stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, open := <-watch:
			if !open {
				return nil // as ctx
			}
			e.setRecord(d)
		case <-e.Ownership.Changes():
		case <-tick.C:
			e.publish(ctx)
		}
		e.look(ctx)
	}
}

func (e *Engine) setRecord(d upgradestate.Deployment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.record = d
	close(e.news)
	e.news = make(chan struct{})
}

// look starts and ends what the record and the ownership of shards ask for.
func (e *Engine) look(ctx context.Context) {
	d := e.record // nobody else writes it
	u := d.Update
	if e.Pacer != nil && d.RingSize > 0 {
		e.Pacer.Set(d.Pace, float64(len(e.Ownership.Owned()))/float64(d.RingSize))
	}
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
			e.Log.Warn("data update will be tried again", zap.String("update", u.Name), zap.Error(err))
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
		e.Log.Info("data update waits", zap.String("for", waits))
	}
	e.waits = waits
}

// begin makes or loads the plan of the run that the record names. Without a run, waits
// returns what this controller lacks.
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
	r.ctx, r.cancel = context.WithCancel(ctx)
	e.Log.Info("data update begins here", zap.String("update", r.update.Name), zap.String("id", r.update.Run()), zap.String("kind", r.update.Kind), zap.Int64("records", r.plan.Total))
	return r, "", nil
}

// choose finds what the run does to records, and where.
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
	case r.task.Hash() != u.Hash:
		return fmt.Sprintf("controller %s has another revision of task %s: deploy the same everywhere, or cancel the update and begin it again", e.cfg.Owner, u.Name), nil
	}
	if r.ns = e.Namespace(u.Version); r.ns == nil {
		return fmt.Sprintf("controller %s is not configured for %s", e.cfg.Owner, u.Version), nil
	}
	return "", nil
}

const waitsForPlaces = "the collections of the current version to be open for writes"

func (e *Engine) makePlan(ctx context.Context, d upgradestate.Deployment, r *run) (p Plan, waits string, err error) {
	tok, ok := token(d, r.update.Kind)
	if !ok {
		return p, waitsForPlaces, nil
	}
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

// deal starts shards that were gained and ends those that were lost.
func (e *Engine) deal(u upgradestate.Update) {
	owned := e.Ownership.Owned()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.now
	for n, s := range r.shards {
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

// Progress is this controller's part of the run; without an ID there is none.
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
		if !s.loaded {
			continue
		}
		sp := ShardProgress{Shard: n, Count: s.at.Count}
		if len(s.at.Examples) > 0 {
			sp.Example = s.at.Examples[0].String()
		}
		p.Shards = append(p.Shards, sp)
	}
	slices.SortFunc(p.Shards, func(a, b ShardProgress) int { return a.Shard - b.Shard })
	return p
}

// publish stores the progress when it has changed.
func (e *Engine) publish(ctx context.Context) {
	p := e.Progress()
	lease := e.Lease()
	if lease == 0 || reflect.DeepEqual(p, e.published) || p.ID == "" && e.published.ID == "" {
		return
	}
	if err := e.Journal.PublishUpdateProgress(ctx, p, lease); err != nil {
		e.Log.Debug("progress of the data update is published later", zap.Error(err))
		return
	}
	e.published = p
}
