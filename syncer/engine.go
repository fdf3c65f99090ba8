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

	"dbcontroller.dev/coord"
	"dbcontroller.dev/internal/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/throttle"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Config configures an Engine. Zero values mean the defaults named.
type Config struct {
	Owner   string // this controller's id, for people
	Epoch   uint64 // the direction epoch this engine works in
	Ring    int    // number of shards
	Workers int    // parallel copies and applies; 4
	// Page is how many records a copy reads at once; 2000.
	Page int
	// LagBound is how long the changes of a batch may take to be applied for a shard to
	// count as caught up (switch.maxLag); 500 ms. After four times of it a ready report is
	// withdrawn.
	LagBound time.Duration
	// StableFor is how long a shard must have been caught up, and this controller have had
	// nothing to copy or to compare as a whole, before it reports ready; 1 s.
	StableFor time.Duration
	// LateBound is how many groups may wait for their second comparison in one shard at
	// the time it reports ready; 50. It bounds the re-check while writes are held.
	LateBound int
	// LateBytes is about how much memory the groups that wait for their second comparison may
	// take, of all shards together; 64 MiB. Beyond it no further changes are read.
	LateBytes int
	// Every is the interval of checkpoints, progress and late comparisons; 500 ms.
	Every time.Duration
	// Copy starts the copy; without it the engine waits for a running upgrade.
	Copy bool
	// Snapshot has the engine serve an upgrade to the snapshot, and sync nothing.
	Snapshot bool
	// ShowValues has parked entries quote values of records, where errors do. They are kept in
	// the coordination store and shown to everybody who may look at the deployment.
	ShowValues bool
	// LateDeletes, if not nil, returns what the engine of the direction before has counted
	// in a shard: what passes the fence of that switch is part of this engine's progress.
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

// Parts are what an Engine works with. What is not marked as optional is needed.
type Parts struct {
	Source, Target record.Namespace
	Direction      transform.Direction
	Deployments    Deployments
	Journal        Journal
	Ownership      Ownership
	Comparer       Comparer
	Lease          func() coord.LeaseID // of this controller, for published progress
	// TargetLacks returns in words what the target's collections lack besides records, such
	// as an index that is being built; "" is nothing. It must not block. Nil lacks nothing.
	TargetLacks func() string
	// SourceLacks returns in words which of the source's collections cannot be followed now; "" is
	// none. It must not block. Nil lacks nothing.
	SourceLacks func() string
	// Replaced is called again and again while the stream of the source ends at a place where an
	// application has replaced its collection. seen is the record that the engine began with. It
	// has the collection followed that bears the name now (upgradestate.Replace), which ends the
	// engine, or returns for people why that cannot be yet. Nil: such a stream ends the engine.
	Replaced func(ctx context.Context, seen upgradestate.Deployment, what *record.ReplacedError) error
	// Lives returns an error when source or target is older than was known, as after a restore
	// from a backup. It is called for the checkpoints of a round after they were made, and none is
	// stored before it has returned nil. Nil: nobody looks.
	Lives func(ctx context.Context) error
	// Pacer holds bulk work back; nil is one that knows the record alone.
	Pacer *throttle.Pacer
	// Tracer makes spans of pages and batches: how long they took and how many records they
	// had, never which; nil makes none.
	Tracer trace.Tracer
	Log    *zap.Logger
}

// Engine syncs one direction for the shards that its controller owns.
type Engine struct {
	Parts
	cfg  Config
	key  DirectionKey
	plan Plan
	// generation is that of upgradestate.Images when the engine began. It works for no other.
	generation uint64
	bound      upgradestate.Deployment // the record that it began with
	lineage    bool                    // some groups go by content
	// targetStart is a version of the target from when this engine, or its latest rescan, began.
	targetStart record.Version
	// targetFloor is how far the target must be watched before a shard is drained.
	targetFloor record.Version

	mu         sync.Mutex
	shards     map[int]*shard
	parked     map[transform.GroupID]Parked  // of the whole direction, as last listed
	unlisted   map[transform.GroupID]bool    // changed here since a list of parked was asked for
	failing    map[transform.GroupID]failure // units in late sets that may have to be parked
	others     map[int]record.Version        // how far the shards of others were seen to be compared
	record     upgradestate.Deployment
	news       chan struct{} // closed and replaced when anything that waiters look at changed
	restart    bool          // the tail must begin again at an earlier position
	rewatch    bool          // so must the stream of the target
	pass       *pass         // the rescan that runs
	lastErr    string
	replaced   string                          // why nothing of the source can be followed now; "" while it can
	tenths     map[string]int                  // by what milestone says
	complaints map[string]*reconcile.Complaint // by what is tried again
	adopted    []int                           // shards that the log is still to tell of
	changed    changed

	rings atomic.Uint64 // of unique values that it has followed

	// own is what this engine has written, and was not seen to in the target yet.
	own account

	published   []Progress
	next        *Engine      // of the direction after this one; it publishes the progress by now
	deleted     []lateDelete // what next has to look at
	deletedSize int          // about how many bytes deleted takes
	// wake gets a token when housekeeping has something to do that would otherwise wait for it:
	// the step of the upgrade changed, a shard is copied, loaders are fenced.
	wake chan struct{}
	// readopt gets a token when a lock has turned out to be lost.
	readopt chan struct{}

	round    int       // of keep, which alone uses it
	savedAll time.Time // used by keep alone
	// writeAfter is when checkpoints and progress may be written again; guarded by mu.
	writeAfter time.Time
	retried    time.Time      // used by housekeep alone
	elsewhere  map[int]bool   // shards of others that were seen to be copied; used by housekeep alone
	busy       time.Time      // when the last page was copied or compared
	recordSize map[string]int // by source kind: bytes of a record, on average of the page read last; guarded by mu

	// Each is held by one at a time, across calls of the coordination store.
	saving  *semaphore.Weighted // an older checkpoint must not be stored later
	listing *semaphore.Weighted // unlisted is of one list of parked

	spent   spent // by copies
	sizes   transform.Sizer
	holding *semaphore.Weighted // runs of groups that are in memory; as many as workers
}

// ErrOtherTransform ends an engine whose transformation is not the one that is announced, or
// that of the upgrade that runs: what it would write is not what the others write. Its process
// must not own shards.
var ErrOtherTransform = errors.New("another transformation is in use")

// errOver ends an engine whose direction epoch has passed.
var errOver = errors.New("direction is over")

// Key names a direction's persisted state.
func Key(epoch uint64, d transform.Direction, generation uint64) DirectionKey {
	return KeyOf(epoch, d.From(), d.To(), d.Hash(), generation)
}

// KeyOf is Key for a direction of which only the hash is known. generation is that of
// upgradestate.Images: a transformation that comes back after another one begins anew.
func KeyOf(epoch uint64, from, to, hash string, generation uint64) DirectionKey {
	if generation > 0 {
		hash += fmt.Sprintf(".g%d", generation)
	}
	return DirectionKey(fmt.Sprintf("%d-%s-%s-%s", epoch, from, to, hash))
}

// KeyIn is the key of the present direction of a record, to what is available.
func KeyIn(d upgradestate.Deployment, to upgradestate.Available) DirectionKey {
	m, ok := upgradestate.ImagesOf(d, to.TargetVersion)
	if !ok || m.TransformHash != to.TransformHash {
		m.Generation = 0
	}
	return KeyOf(d.Epoch, d.CurrentVersion, to.TargetVersion, to.TransformHash, m.Generation)
}

// New makes an engine; Run makes it work.
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
		failing: map[transform.GroupID]failure{}, others: map[int]record.Version{}, elsewhere: map[int]bool{}, recordSize: map[string]int{},
		tenths: map[string]int{}, complaints: map[string]*reconcile.Complaint{},
		news:    make(chan struct{}),
		wake:    make(chan struct{}, 1),
		readopt: make(chan struct{}, 1),
		saving:  semaphore.NewWeighted(1), listing: semaphore.NewWeighted(1),
		holding: semaphore.NewWeighted(int64(cfg.Workers)),
	}
}

// HandOver makes the engine stop publishing progress: its direction is over, and next
// does, with LateDeletes of this one. Next brings back what late deletes have removed.
func (e *Engine) HandOver(next *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next = next
	e.announce()
	e.cfg.LateDeletes = nil // the one before this is no longer of interest
}

// LateDeletes counts what has passed a fence of a class that lets deletes through, in an
// owned shard.
func (e *Engine) LateDeletes(shard int) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[shard]; s != nil {
		return s.applied.lateDeletes
	}
	return 0
}

// Run works until ctx ends or the direction's epoch has passed, which is no error: the
// caller then starts an engine for the new direction, if there is one. Before it returns it
// saves the checkpoints of the shards it still owns. An error is one that trying again does
// not cure; the ready reports of these shards are taken back then.
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
	g, ctx := errgroup.WithContext(parent)
	g.Go(func() error { return e.watchRecord(ctx) })
	g.Go(func() error {
		if err := e.prepare(ctx); err != nil {
			return err
		}
		g.Go(func() error { return e.watchOwnership(ctx) })
		g.Go(func() error { return e.tail(ctx) })
		g.Go(func() error { return e.watchTarget(ctx) })
		g.Go(func() error { return e.housekeep(ctx) })
		g.Go(func() error { return e.keep(ctx) })
		g.Go(func() error { return e.restoreDeleted(ctx) })
		for range e.cfg.Workers {
			g.Go(func() error { return e.bulkWorker(ctx) })
		}
		return nil
	})
	err := ended(parent, g.Wait())
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if _, saveErr := e.saveCheckpoints(stop, true); saveErr != nil {
		e.Log.Debug("last checkpoint was not saved", zap.Error(saveErr))
	}
	if err != nil {
		if withdrawErr := e.withdrawAll(stop); withdrawErr != nil {
			e.Log.Warn("ready reports stand although the engine has ended", zap.Error(withdrawErr))
		}
	}
	return err
}

// ended makes Run's error: that the caller or the direction ends is none.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errOver) {
		return nil
	}
	return err
}
