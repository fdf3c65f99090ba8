package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"dbcontroller/coord"
	"dbcontroller/record"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
)

// Config says how an Engine works. Zero values mean the defaults named.
type Config struct {
	Owner   string // this controller's id, for people
	Epoch   uint64 // the direction epoch this engine works in
	Ring    int    // number of shards
	Workers int    // parallel copies and applies; 4
	MaxRate int    // records copied a second by this controller; 0 is no limit
	// Page is how many records a copy reads at once; 2000.
	Page int
	// LagBound is how long the changes of a batch may take to be applied for a shard to
	// count as level; 500 ms. After four times of it a ready report is withdrawn.
	LagBound time.Duration
	// Calm is how long a shard must have been level, and this controller have had nothing
	// to copy or to compare as a whole, before it reports ready; 1 s.
	Calm time.Duration
	// LateBound is how many groups may wait for their second comparison in one shard at
	// the time it reports ready; 50. It bounds the re-check while writes are held.
	LateBound int
	// Every is the interval of checkpoints, progress and late comparisons; 500 ms.
	Every time.Duration
	// Copy starts the copy; without it the engine waits for a running upgrade.
	Copy bool
}

func (c Config) withDefaults() Config {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&c.Workers, 4)
	set(&c.Page, 2000)
	set(&c.LateBound, 50)
	if c.LagBound == 0 {
		c.LagBound = 500 * time.Millisecond
	}
	if c.Calm == 0 {
		c.Calm = time.Second
	}
	if c.Every == 0 {
		c.Every = 500 * time.Millisecond
	}
	return c
}

// Parts are what an Engine works with. All are needed.
type Parts struct {
	Source, Target record.Namespace
	Direction      transform.Direction
	Deployments    Deployments
	Journal        Journal
	Ownership      Ownership
	Comparer       Comparer
	Lease          func() coord.LeaseID // of this controller, for published progress
	Log            *zap.Logger
}

// Engine syncs one direction for the shards that its controller owns.
type Engine struct {
	Parts
	cfg     Config
	key     DirectionKey
	limiter *rate.Limiter
	plan    Plan

	mu        sync.Mutex
	shards    map[int]*shard
	parked    map[transform.GroupID]Parked // of the whole direction, as last listed
	parkedSeq uint64                       // counts this engine's own changes of parked
	record    upgradestate.Deployment
	news      chan struct{} // closed and replaced when anything that waiters look at changed
	restart   bool          // the tail must begin again at an earlier position
	lastErr   string

	published []Progress
	// wake gets a token when the step of the upgrade changed, so that housekeeping does
	// not sleep through the beginning of a switch.
	wake chan struct{}
	// readopt gets a token when a lock has turned out to be lost.
	readopt chan struct{}

	savedAll, retried time.Time // used by housekeep alone
	busy              time.Time // when the last page was copied or compared
}

// ErrOtherTransform ends an engine whose transformation is not that of the upgrade that
// runs: what it would write is not what the others write. Its process must not own shards.
var ErrOtherTransform = errors.New("another transformation is in use")

// errOver ends an engine whose direction epoch has passed.
var errOver = errors.New("direction is over")

// Key names a direction's persisted state.
func Key(epoch uint64, d transform.Direction) DirectionKey {
	return DirectionKey(fmt.Sprintf("%d-%s-%s-%s", epoch, d.From(), d.To(), d.Hash()))
}

// New makes an engine; Run makes it work.
func New(p Parts, cfg Config) *Engine {
	cfg = cfg.withDefaults()
	limit := rate.Inf
	if cfg.MaxRate > 0 {
		limit = rate.Limit(cfg.MaxRate)
	}
	return &Engine{
		Parts: p, cfg: cfg, key: Key(cfg.Epoch, p.Direction),
		limiter: rate.NewLimiter(limit, max(cfg.Page, cfg.MaxRate)),
		shards:  map[int]*shard{},
		parked:  map[transform.GroupID]Parked{},
		news:    make(chan struct{}),
		wake:    make(chan struct{}, 1),
		readopt: make(chan struct{}, 1),
	}
}

// Run works until ctx ends or the direction's epoch has passed, which is no error: the
// caller then starts an engine for the new direction, if there is one. Before it returns it
// saves the checkpoints of the shards it still owns.
func (e *Engine) Run(ctx context.Context) error {
	d, err := e.Deployments.Get(ctx)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.setRecord(d)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.watchRecord(ctx) })
	g.Go(func() error {
		if err := e.prepare(ctx); err != nil {
			return err
		}
		g.Go(func() error { return e.watchOwnership(ctx) })
		g.Go(func() error { return e.tail(ctx) })
		g.Go(func() error { return e.housekeep(ctx) })
		for range e.cfg.Workers {
			g.Go(func() error { return e.copyWorker(ctx) })
		}
		return nil
	})
	err = g.Wait()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if saveErr := e.saveCheckpoints(stop, true); saveErr != nil {
		e.Log.Debug("last checkpoint was not saved", zap.Error(saveErr))
	}
	if errors.Is(err, errOver) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// prepare makes or loads the plan. The start position is stored with it, before any
// record is copied.
func (e *Engine) prepare(ctx context.Context) error {
	if err := e.idle(ctx); err != nil {
		return err
	}
	return e.persist(ctx, "plan", func() error {
		plan, found, err := e.Journal.LoadPlan(ctx, e.key)
		if err != nil {
			return err
		}
		if !found {
			if plan, err = e.makePlan(ctx); err != nil {
				return err
			}
			if plan, err = e.Journal.CreatePlan(ctx, e.key, plan); err != nil {
				return err
			}
		}
		e.mu.Lock()
		e.plan = plan
		e.mu.Unlock()
		return nil
	})
}

// idle returns when there is something to do. Until then shards that shall leave are
// handed over: other controllers would otherwise wait for them.
func (e *Engine) idle(ctx context.Context) error {
	for {
		for _, n := range e.Ownership.Leaving() {
			if err := e.Ownership.Release(ctx, n); err != nil {
				return fmt.Errorf("release shard %d: %w", n, err)
			}
		}
		e.mu.Lock()
		work, news := e.cfg.Copy || e.record.Upgrade != nil, e.news
		e.mu.Unlock()
		if work {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		case <-e.Ownership.Changes():
		}
	}
}

func (e *Engine) makePlan(ctx context.Context) (Plan, error) {
	plan := Plan{Ranges: map[string][]record.Range{}, Totals: map[string]int64{}}
	var err error
	if plan.Start, err = e.Source.Position(ctx); err != nil {
		return Plan{}, fmt.Errorf("start position: %w", err)
	}
	src, err := e.sourceTokens(ctx)
	if err != nil {
		return Plan{}, err
	}
	for _, k := range e.Direction.SourceKinds() {
		if plan.Ranges[k.Name], err = e.Source.Split(ctx, src[k.Name], e.cfg.Ring); err != nil {
			return Plan{}, fmt.Errorf("split %s: %w", k.Name, err)
		}
		info, err := e.Source.Describe(ctx, k, src[k.Name].Name)
		if err != nil {
			return Plan{}, fmt.Errorf("describe %s: %w", k.Name, err)
		}
		plan.Totals[k.Name] = info.Count
	}
	return plan, nil
}

// watchRecord keeps e.record fresh and ends the engine when its epoch has passed.
func (e *Engine) watchRecord(ctx context.Context) error {
	for d := range e.Deployments.Watch(ctx) {
		e.setRecord(d)
		if d.Epoch > e.cfg.Epoch && !e.keepsLateWatch(d) {
			return errOver
		}
		if u := d.Upgrade; u != nil && d.Epoch == e.cfg.Epoch && u.TransformHash != e.Direction.Hash() {
			return fmt.Errorf("%w: upgrade %s to %s runs with transform %s, this process has %s",
				ErrOtherTransform, u.ID, u.TargetVersion, u.TransformHash, e.Direction.Hash())
		}
	}
	return ctx.Err()
}

// keepsLateWatch reports whether the old stream must stay open after the flip: a fence
// of the validator class lets deletes through, and they have to be reported.
func (e *Engine) keepsLateWatch(d upgradestate.Deployment) bool {
	if d.Epoch != e.cfg.Epoch+1 || d.Upgrade != nil {
		return false
	}
	for _, ns := range d.Namespaces {
		if ns.Version != e.Direction.From() {
			continue
		}
		for _, k := range ns.Kinds {
			if k.Fixed && k.Fence == string(record.FenceValidator) {
				return true
			}
		}
	}
	return false
}

func (e *Engine) setRecord(d upgradestate.Deployment) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.Revision < e.record.Revision {
		return
	}
	if step(e.record) != step(d) {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
	e.record = d
	e.announce()
}

func step(d upgradestate.Deployment) upgradestate.Step {
	if d.Upgrade == nil {
		return upgradestate.StepNone
	}
	return d.Upgrade.Step
}

// announce wakes everyone in await. e.mu is held.
func (e *Engine) announce() {
	close(e.news)
	e.news = make(chan struct{})
}

// await blocks until ok, which is called with e.mu held, is true.
func (e *Engine) await(ctx context.Context, ok func() bool) error {
	for {
		e.mu.Lock()
		done, news := ok(), e.news
		e.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

func (e *Engine) current() upgradestate.Deployment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record
}

// over reports that this engine's direction has ended (e.mu is held by the caller of await).
func (e *Engine) over() bool { return e.record.Epoch > e.cfg.Epoch }

// failed notes an error that work goes on after, for people.
func (e *Engine) failed(what string, err error) {
	e.mu.Lock()
	e.lastErr = fmt.Sprintf("%s: %v", what, err)
	for _, s := range e.shards {
		s.retries++
	}
	e.mu.Unlock()
}
