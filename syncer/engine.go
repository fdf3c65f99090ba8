package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Config configures an Engine. A zero value selects the default given for the field.
type Config struct {
	Owner   string // id of this controller, shown in progress
	Epoch   uint64 // direction epoch of this engine
	Ring    int    // number of shards
	Workers int    // parallel copies and applies; default 4
	// Page is the number of records per read of a copy. The default is 2000.
	Page int
	// LagBound is the maximum time to apply a batch of changes for a shard to count as caught up
	// (switch.maxLag). The default is 500 ms. After four times this duration a ready report is
	// withdrawn.
	LagBound time.Duration
	// StableFor is how long a shard must be caught up, and this controller have no bulk work,
	// before the shard reports ready. The default is 1 s.
	StableFor time.Duration
	// LateBound is the maximum number of groups in a shard that wait for a second comparison when
	// it reports ready. The default is 50. It bounds the comparison while writes are held.
	LateBound int
	// LateBytes is the approximate memory limit for groups that wait for a second comparison, over
	// all shards. The default is 64 MiB. At the limit the engine stops reading changes.
	LateBytes int
	// Every is the interval of checkpoints, progress and late comparisons. The default is 500 ms.
	Every time.Duration
	// Copy starts the copy at once. Without it the engine waits for an upgrade.
	Copy bool
	// Snapshot makes the engine serve an upgrade to the snapshot. It then syncs nothing.
	Snapshot bool
	// ShowValues includes record values in the errors of parked entries. The coordination store
	// keeps them, and everyone with access to the deployment can read them.
	ShowValues bool
	// LateDeletes returns the number of late deletes that the engines of ended directions have
	// counted in a shard. This engine adds it to its progress. Nil counts none.
	LateDeletes func(shard int) int64
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
	set(&c.LateBytes, 64<<20)
	if c.LagBound == 0 {
		c.LagBound = 500 * time.Millisecond
	}
	if c.StableFor == 0 {
		c.StableFor = time.Second
	}
	if c.Every == 0 {
		c.Every = 500 * time.Millisecond
	}
	return c
}

// Parts are the dependencies of an Engine. All are required unless their comment states the meaning
// of nil.
type Parts struct {
	Source, Target record.Namespace
	Direction      transform.Direction
	Deployments    Deployments
	Journal        Journal
	Ownership      Ownership
	Comparer       Comparer
	Lease          func() coord.LeaseID // lease of this controller, for published progress
	// TargetLacks describes missing parts of the target's collections besides records, such as an
	// index build in progress. "" means that nothing is missing. It must not block. Nil means that
	// nothing is missing.
	TargetLacks func() string
	// SourceLacks describes source collections that cannot be followed now. "" means that all can
	// be followed. It must not block. Nil means that all can be followed.
	SourceLacks func() string
	// Replaced is called repeatedly after the source's stream has ended because an application
	// replaced its collection. seen is the Deployment that the engine started with. Replaced makes
	// the deployment follow the collection that has the name now (upgradestate.Replace), which ends
	// the engine, or returns the reason for a delay. Nil: such a stream ends the engine.
	Replaced func(ctx context.Context, seen upgradestate.Deployment, what *record.ReplacedError) error
	// Lives returns an error if the source or the target is older than known, as after a restore
	// from a backup. It is called after each round's checkpoints are made, which are stored only if
	// it returns nil. It is also called between a read of the source and the write of what was read:
	// for a repair, and after the source has new connections. It must then not wait for the engine.
	// Nil skips the check.
	Lives func(ctx context.Context) error
	// Pacer throttles bulk work. Nil selects one that knows only the pace in the Deployment.
	Pacer *throttle.Pacer
	// Tracer makes spans of pages and batches, with durations and numbers of records but no keys.
	// Nil makes none.
	Tracer trace.Tracer
	Log    *zap.Logger
}

// Engine syncs one direction for the shards of its controller. Its methods are safe for concurrent
// use.
type Engine struct {
	Parts
	cfg  Config
	key  DirectionKey
	plan Plan
	// generation is upgradestate.Images.Generation when the engine started. A record with another
	// generation ends the engine.
	generation uint64
	bound      upgradestate.Deployment // the Deployment that the engine started with
	lineage    bool                    // the direction has groups by content
	// targetStart is a version of the target at the start of this engine or of its latest rescan.
	// No read of the target is older.
	targetStart record.Version
	// sourceFloor is a position of the source that was asked for behind the fence of loaders. Comparisons
	// of ranges read no older state of the source. Otherwise a late page could bring back a record after
	// its delete was applied and compared, and equal a source from before the delete.
	//
	// With the floor no change C is lost to a page that was read before it. Loaders without guards have
	// ended at the fence, whatever controller they belong to.
	//   - If C was applied before the page was loaded, the stream had it before the fence was in force,
	//     so C was acknowledged before the floor was asked for. record.Watcher promises that the floor
	//     is then not before C, also in a source of several shards, and record.ScanRequest that a read
	//     not before the floor shows C: a deposed primary or a late secondary must wait or fail. So the
	//     comparison finds the difference.
	//   - If C is applied later, its guarded write comes behind the page, and stays.
	//
	// A source that was restored from a backup may be behind the floor, and its reads fail. A decision
	// about the restore begins another epoch, and with it another engine.
	sourceFloor record.Version
	// targetFloor is the version up to which the target must be watched before a shard is drained.
	targetFloor record.Version

	mu         sync.Mutex
	shards     map[int]*shard
	parked     map[transform.GroupID]Parked  // of the whole direction, as last listed
	unlisted   map[transform.GroupID]bool    // changed by this engine since the list was requested
	parkedNews atomic.Bool                   // parked may have changed since it was listed
	failing    map[transform.GroupID]failure // late units that may have to be parked
	others     map[int]record.Version        // compared versions last seen of other controllers' shards
	record     upgradestate.Deployment
	news       chan struct{} // closed and replaced when any state that waiters check has changed
	restart    bool          // the tail must restart at an earlier position
	rewatch    bool          // the stream of the target must restart
	helpers    int           // further workers for bulk work, while a database is far away
	pass       *pass         // the running rescan
	lastErr    string
	replaced   string                          // why the source cannot be followed now; "" if it can
	tenths     map[string]int                  // progress last logged, by message
	complaints map[string]*reconcile.Complaint // logged errors of retried work, by work
	tallies    map[string]tally                // events of others that are logged once a minute
	adopted    []int                           // adopted shards that are not logged yet
	changed    changed

	rings atomic.Uint64 // number of rings followed, for fair order (nextRing)

	// own holds this engine's writes that the target's stream has not delivered yet.
	own account
	// checked is the number of the source's connections at the latest successful check for a
	// restore, plus one. 0: no check yet.
	checked atomic.Uint64

	published  []Progress
	handedOver bool // another engine publishes progress now
	// wake receives a token when housekeeping has work that should not wait for its tick: a new
	// step of the upgrade, a copied shard, a fence of loaders.
	wake chan struct{}
	// readopt receives a token when a lock turned out to be lost.
	readopt chan struct{}

	round    int       // rounds of keep; used by keep alone
	savedAll time.Time // used by keep alone
	// writeAfter is when checkpoints and progress may be written again. Guarded by mu.
	writeAfter time.Time
	retried    time.Time      // used by housekeep alone
	elsewhere  map[int]bool   // other controllers' shards seen to be copied; used by housekeep alone
	busy       time.Time      // when the last page was copied or compared
	recordSize map[string]int // average bytes of a record in the last page, by source kind
	expected   map[string]int // bytes of a record before the first page, by source kind; see expect

	// Semaphores, since they are held across calls of the coordination store.
	saving  *semaphore.Weighted // an older checkpoint must not overwrite a newer one
	listing *semaphore.Weighted // unlisted belongs to one list at a time

	spent   spent // time of copies by stage
	sizes   transform.Sizer
	holding *semaphore.Weighted // groups in memory, in heldUnit bytes (hold)
}

// ErrOtherTransform ends an engine whose transformation differs from the announced one or from the
// running upgrade's. Its writes would conflict with those of other controllers. The caller must
// release its shards.
var ErrOtherTransform = errors.New("another transformation is in use")

// errOver ends an engine after its direction epoch has passed.
var errOver = errors.New("direction is over")

// Key returns the key of a direction's persisted state.
func Key(epoch uint64, d transform.Direction, generation uint64) DirectionKey {
	return KeyOf(epoch, d.From(), d.To(), d.Hash(), generation)
}

// KeyOf is Key for a direction known by versions and hash. generation is
// upgradestate.Images.Generation: it separates a transformation that returns after another one from
// its first use.
func KeyOf(epoch uint64, from, to, hash string, generation uint64) DirectionKey {
	// The first generation has no suffix, as in the keys of earlier binaries.
	if generation > 0 {
		hash += fmt.Sprintf(".g%d", generation)
	}
	return DirectionKey(fmt.Sprintf("%d-%s-%s-%s", epoch, from, to, hash))
}

// KeyIn returns the key of the direction from the current version of a Deployment to an available
// one.
func KeyIn(d upgradestate.Deployment, to upgradestate.Available) DirectionKey {
	m, ok := upgradestate.ImagesOf(d, to.TargetVersion)
	if !ok || m.TransformHash != to.TransformHash {
		m.Generation = 0
	}
	return KeyOf(d.Epoch, d.CurrentVersion, to.TargetVersion, to.TransformHash, m.Generation)
}

// New returns an Engine that works once Run is called.
func New(p Parts, cfg Config) *Engine {
	cfg = cfg.withDefaults()
	if p.Pacer == nil {
		p.Pacer = throttle.New(throttle.Config{})
	}
	if p.Tracer == nil {
		p.Tracer = noop.Tracer{}
	}
	return &Engine{
		Parts: p, cfg: cfg, key: Key(cfg.Epoch, p.Direction, 0),
		lineage: hasContent(p.Direction),
		shards:  map[int]*shard{},
		parked:  map[transform.GroupID]Parked{}, unlisted: map[transform.GroupID]bool{},
		failing: map[transform.GroupID]failure{}, others: map[int]record.Version{}, elsewhere: map[int]bool{}, recordSize: map[string]int{}, expected: map[string]int{},
		tenths: map[string]int{}, complaints: map[string]*reconcile.Complaint{}, tallies: map[string]tally{},
		news:    make(chan struct{}),
		wake:    make(chan struct{}, 1),
		readopt: make(chan struct{}, 1),
		saving:  semaphore.NewWeighted(1), listing: semaphore.NewWeighted(1),
		holding: newHolding(cfg.Workers),
	}
}

// HandOver makes the engine stop publishing progress after its direction has ended. From then on
// another engine publishes, and its progress includes the LateDeletes of this one.
func (e *Engine) HandOver() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handedOver = true
}

// LateDeletes returns the number of deletes that passed a fence of the validator class in an owned
// shard. It returns 0 for other shards.
func (e *Engine) LateDeletes(shard int) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[shard]; s != nil {
		return s.applied.lateDeletes
	}
	return 0
}

// Run works until ctx ends or the direction's epoch has passed, and then returns nil. After the end
// of the epoch the caller starts an engine for the new direction, if there is one. Before Run
// returns, it saves the checkpoints of owned shards. A non-nil error is permanent, and Run then
// withdraws the ready reports of these shards.
func (e *Engine) Run(parent context.Context) error {
	if err := e.persist(parent, "read deployment", func() error { return e.refresh(parent) }); err != nil {
		return ended(parent, err)
	}
	if err := e.bind(); err != nil {
		return ended(parent, err)
	}
	if e.cfg.Snapshot {
		return ended(parent, e.runSnapshot(parent))
	}
	defer e.Pacer.Rest() // its turn is for another deployment of the process
	// The record is watched from the beginning, since idle waits for an upgrade in it.
	g, ctx := errgroup.WithContext(parent)
	g.Go(func() error { return e.watchRecord(ctx) })
	g.Go(func() error {
		if err := e.idle(ctx); err != nil {
			return err
		}
		g.Go(func() error { return e.help(ctx, g) })
		if err := e.prepare(ctx); err != nil {
			return err
		}
		// The rest needs the plan.
		g.Go(func() error { return e.watchOwnership(ctx) })
		g.Go(func() error { return e.tail(ctx) })
		g.Go(func() error { return e.watchTarget(ctx) })
		watched := e.watchParked(ctx, g)
		g.Go(func() error { return e.housekeep(ctx, watched) })
		g.Go(func() error { return e.keep(ctx) })
		for range e.cfg.Workers {
			g.Go(func() error { return e.bulkWorker(ctx, noHelper) })
		}
		return nil
	})
	err := ended(parent, g.Wait())
	// ctx is done here. The last save gets a short time of its own.
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	// A failed save costs repeated work and no data.
	if _, saveErr := e.saveCheckpoints(stop, true); saveErr != nil {
		e.Log.Debug("last checkpoint was not saved", zap.Error(saveErr))
	}
	// Without an engine the shards would stay reported ready while nothing follows their changes.
	if err != nil {
		if withdrawErr := e.withdrawAll(stop); withdrawErr != nil {
			e.Log.Warn("ready reports stand although the engine has ended", zap.Error(withdrawErr))
		}
	}
	return err
}

// ended drops errors that follow from the end of the caller or of the direction.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errOver) {
		return nil
	}
	return err
}
