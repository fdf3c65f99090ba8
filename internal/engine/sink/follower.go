package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// Config configures a Follower. Zero values mean the defaults given here.
type Config struct {
	// Kinds holds the transform of each kind that is followed. The sink has no other kinds.
	Kinds map[string]Transform
	// Probe is the interval at which the Follower finds out how far the sink is; 1 s. Each time it
	// asks the database for its position, which may cost it a small write.
	Probe time.Duration
	// KeepTombstones is how long a tombstone stays after its deletion is covered by the stored
	// position; 1 min. A write that was on its way then must have ended by that time.
	KeepTombstones time.Duration
	Log            *slog.Logger // nil discards
}

const (
	pageSize  = 500              // records of one read
	saveEvery = 10 * time.Second // longest time for which a position without changes is not stored
)

// errRestart ends the present work so that it begins again from the stored State.
var errRestart = errors.New("begin again")

// Follower writes a namespace into a sink. Its methods are safe for concurrent use.
type Follower struct {
	source Source
	sink   Sink
	cfg    Config
	log    *slog.Logger

	writing sync.Mutex // held for each write into the sink
	saved   time.Time  // when the position was last stored. Guarded by writing
	keep    []kept     // stored positions that tombstones wait for. Guarded by writing

	mu      sync.Mutex
	state   State
	level   time.Time // everything acknowledged before is in the sink; zero: unknown
	asked   []probe   // positions that the stream has not reached yet, oldest first
	want    time.Time // somebody waits until level reaches it
	news    chan struct{}
	failed  map[string]map[string]bool // names of failed records, by kind
	problem error                      // of the latest attempt; nil: it works
	rebuild bool
	restart context.CancelCauseFunc // ends the present attempt
}

// kept is a stored position.
type kept struct {
	guard record.Guard
	at    time.Time
}

// probe is a position of the database and a moment before it was asked for.
type probe struct {
	at    record.Version
	asked time.Time
}

// New makes a Follower. Run does the work.
func New(source Source, s Sink, cfg Config) *Follower {
	if cfg.Probe == 0 {
		cfg.Probe = time.Second
	}
	if cfg.KeepTombstones == 0 {
		cfg.KeepTombstones = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Follower{source: source, sink: s, cfg: cfg, log: cfg.Log, news: make(chan struct{}), failed: map[string]map[string]bool{}}
}

// Run follows the source until ctx ends, and returns its error. It also ends with an error of the sink
// that is an ErrReopen.
func (f *Follower) Run(ctx context.Context) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		attempt, cancel := context.WithCancelCause(ctx)
		f.begin(cancel)
		err := f.follow(attempt, retry.Reset)
		restarted := errors.Is(context.Cause(attempt), errRestart)
		cancel(nil)
		f.ended()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case restarted:
			continue
		}
		f.fail(err)
		if errors.Is(err, ErrReopen) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
	return ctx.Err()
}

func (f *Follower) begin(cancel context.CancelCauseFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restart = cancel
}

// ended forgets what only the attempt knew.
func (f *Follower) ended() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restart, f.asked = nil, nil
}

// fail remembers why nothing is followed, and logs the first of a series of failures.
func (f *Follower) fail(err error) {
	f.mu.Lock()
	first := f.problem == nil || f.problem.Error() != err.Error()
	f.problem = err
	f.mu.Unlock()
	if first {
		f.log.Warn("changes cannot be followed; tried again", slog.Any("error", err))
	}
}

// follow makes one attempt. alive is called after each sign that the source works.
func (f *Follower) follow(ctx context.Context, alive func()) error {
	st, err := f.start(ctx)
	if err != nil {
		return err
	}
	stream, err := f.source.Watch(ctx, st.Position)
	if err != nil {
		return f.lost(err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.tail(ctx, stream, alive) })
	g.Go(func() error { return f.probes(ctx) })
	if st.Scan != nil {
		g.Go(func() error { return f.scan(ctx, st) })
	}
	return f.lost(g.Wait())
}

// start reads the state of the sink, and begins a scan if it needs one.
func (f *Follower) start(ctx context.Context) (State, error) {
	st, err := f.sink.State(ctx)
	if err != nil {
		return st, fmt.Errorf("state of the sink: %w", err)
	}
	id, err := f.source.Identity(ctx)
	if err != nil {
		return st, err
	}
	f.mu.Lock()
	again := f.rebuild
	f.mu.Unlock()
	fresh := st.Source != id || st.Position.IsZero()
	if fresh || again {
		complete := st.Complete() && !fresh
		st.Generation++
		st.Source, st.Scan = id, &Scan{Repair: complete}
		// A complete sink goes on from its place. Everything else begins before its scan.
		if !complete {
			if st.Position, err = f.source.Position(ctx); err != nil {
				return st, err
			}
		}
		if err := f.write(ctx, nil, func(now *State) { *now = st.clone() }); err != nil {
			return st, err
		}
		f.log.Info("all records are read", slog.Uint64("generation", st.Generation), slog.Bool("rebuilt", complete))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rebuild, f.state = false, st.clone()
	// What an earlier attempt knew about other collections is worth nothing.
	if !st.Complete() {
		f.level = time.Time{}
	}
	if fresh || again {
		f.failed = map[string]map[string]bool{}
	}
	return st, nil
}

// lost makes the next attempt scan everything if err means that the place is lost.
func (f *Follower) lost(err error) error {
	if !errors.Is(err, record.ErrHistoryLost) && !errors.Is(err, record.ErrBroken) {
		return err
	}
	f.log.Warn("the place in the changes is lost; all records are read again", slog.Any("error", err))
	f.mu.Lock()
	f.level = time.Time{}
	f.mu.Unlock()
	// The attempt's own context has ended. The state must be stored all the same.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// Without a position the next attempt begins a new generation. Without this write, it finds
	// out again.
	if store := f.write(ctx, nil, func(now *State) { now.Position, now.Scan = record.Position{}, nil }); store != nil {
		return errors.Join(err, store)
	}
	return err
}

// write writes items with the state that change makes of the present one.
func (f *Follower) write(ctx context.Context, items []Item, change func(*State)) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	next := f.state.clone()
	f.mu.Unlock()
	change(&next)
	if err := f.sink.Write(ctx, items, next); err != nil {
		return fmt.Errorf("write into the sink: %w", err)
	}
	f.mu.Lock()
	f.state = next
	f.mu.Unlock()
	f.saved = time.Now()
	return nil
}
