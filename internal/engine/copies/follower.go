package copies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// Event is one event of an owner's watch. Doc is set for vrunner.EventPut, or else Refused, the reason
// why the record cannot be a copy.
type Event struct {
	Type    vrunner.EventType
	Name    string
	Doc     bson.Raw
	Refused error
}

// Source is the API of the region that owns the records.
type Source interface {
	// Watch begins with the present records in name order, followed by vrunner.EventLevel.
	Watch(ctx context.Context) (Stream, error)
}

// Stream delivers events. It fails when the owner is out of reach.
type Stream interface {
	Next(ctx context.Context) (Event, error)
	Close()
}

// Space is the namespace that holds the copies, wherever it is at the moment.
type Space interface {
	// Get returns a record or record.ErrNotFound.
	Get(ctx context.Context, kind, key string) (record.Record, error)
	// Names returns those of these names of a kind that have a record.
	Names(ctx context.Context, kind string, of []string) ([]string, error)
	// ListBounded returns records in name order, up to the one that reaches a number of bytes. more
	// reports that others can follow.
	ListBounded(ctx context.Context, kind, prefix, after string, limit, bytes int) (recs []record.Record, more bool, err error)
	// Write makes all mutations or none.
	Write(ctx context.Context, ms []record.Mutation) error
}

// Config configures a Follower.
type Config struct {
	Kind   string // of the owned records
	Region string // that owns them
	Source Source
	Space  Space
	Decl   region.Kind // says where the records have their region
	Log    *slog.Logger
}

// Report is the state of the copies of one kind and region.
type Report struct {
	Known bool // the state in the namespace has been read; otherwise Whole says nothing
	Whole bool // they were complete at some time
	// Away is the time since when they may be outdated; zero: they follow the owner.
	Away    time.Time
	Problem string // the reason why they do not follow; empty: none
	Both    int    // names that are owned here as well, at most bothMost
	Left    int    // records of the owner that are not copied, at most leftMost
	Example string // one of them with the reason
}

// Follower makes the copies of one kind of one region. Run it in one process at a time.
type Follower struct {
	cfg  Config
	term int64     // of this follower, once it has taken over
	at   time.Time // see state.At

	mu     sync.Mutex
	report Report
	both   map[string]bool
	moved  map[string]bool // names that may become both
	given  map[string]given
	left   map[string]string // reasons, by the names of records that are not copied
}

// New returns a follower.
func New(cfg Config) *Follower {
	return &Follower{cfg: cfg, both: map[string]bool{}, moved: map[string]bool{}, given: map[string]given{}, left: map[string]string{}, report: Report{Away: time.Now()}}
}

// Report returns the present state.
func (f *Follower) Report() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.report
	r.Both, r.Left, r.Example = len(f.both), len(f.left), f.example()
	return r
}

const (
	leastRetry = 100 * time.Millisecond
	mostRetry  = 5 * time.Second
)

// ErrOutdated ends a follower whose place another one has taken.
var ErrOutdated = errors.New("another process follows now")

// Run follows the owner until ctx ends, or until another follower takes over (ErrOutdated).
func (f *Follower) Run(ctx context.Context) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(leastRetry), backoff.WithMaxInterval(mostRetry), backoff.WithMaxElapsedTime(0))
	last, taken := "", false
	for {
		err := f.follow(ctx, &taken)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrOutdated):
			return err
		}
		f.mu.Lock()
		if f.report.Away.IsZero() {
			f.report.Away = time.Now()
			retry.Reset()
		}
		f.report.Problem = err.Error()
		f.mu.Unlock()
		// Each reason once: a region can be away for days.
		if err.Error() != last {
			last = err.Error()
			f.cfg.Log.Warn("copies do not follow their owner", slog.String("kind", f.cfg.Kind), slog.String("region", f.cfg.Region), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// follow takes the place of earlier followers unless that is taken, and follows one watch until it
// ends.
func (f *Follower) follow(ctx context.Context, taken *bool) error {
	if !*taken {
		if err := f.takeOver(ctx); err != nil {
			return fmt.Errorf("state of the copies: %w", err)
		}
		*taken = true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.cfg.Source.Watch(ctx)
	if err != nil {
		return err
	}
	f.settleAll()
	events := make(chan Event, batchMost)
	ended := make(chan error, 1)
	// Bytes of the events that wait and of those that are written. Without a limit a slow database
	// would let a batch of large records fill the memory.
	held := semaphore.NewWeighted(heldMost)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(events)
		for {
			ev, err := stream.Next(ctx)
			if err == nil {
				err = held.Acquire(ctx, ev.held())
			}
			if err != nil {
				ended <- err
				return
			}
			select {
			case events <- ev:
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	})
	// Close first: it ends Next.
	defer reader.Wait()
	defer stream.Close()
	defer cancel()
	w := &walk{f: f}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		batch, open := take(events, beat.C)
		err := w.apply(ctx, batch)
		for _, ev := range batch {
			held.Release(ev.held())
		}
		if err == nil && len(batch) == 0 && open {
			if err = f.underTerm(ctx, nil); err == nil {
				err = f.recheckBoth(ctx)
			}
			if err == nil {
				err = f.dropKept(ctx)
			}
		}
		if err != nil {
			return err
		}
		if !open {
			return <-ended
		}
	}
}

// beatEvery is the interval in which an idle follower notes in the namespace how old the copies are.
// After a restart their age is known to that precision.
const beatEvery = 10 * time.Second

// batchMost is the most events of one write.
const batchMost = 100

// heldMost is the most bytes of events that a follower holds, besides the one that it reads.
const heldMost = 4 << 20

// held returns the share of an event in heldMost. A larger one has all of it.
func (ev Event) held() int64 { return min(int64(len(ev.Name)+len(ev.Doc)), heldMost) }

// take waits for an event and returns it with those that are there already, or returns nothing at a
// beat. open is false after the last one.
func take(events <-chan Event, beat <-chan time.Time) (batch []Event, open bool) {
	var ev Event
	select {
	case ev, open = <-events:
	case <-beat:
		return nil, true
	}
	for open {
		batch = append(batch, ev)
		if len(batch) == batchMost {
			return batch, true
		}
		select {
		case ev, open = <-events:
		default:
			return batch, true
		}
	}
	return batch, false
}

// level notes that the copies are complete and follow their owner.
func (f *Follower) level() {
	f.mu.Lock()
	was := f.report
	f.report = Report{Known: true, Whole: true}
	f.mu.Unlock()
	f.cfg.Log.Info("copies follow their owner", slog.String("kind", f.cfg.Kind), slog.String("region", f.cfg.Region), slog.Bool("first", !was.Whole))
}
