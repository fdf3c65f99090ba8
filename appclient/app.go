package appclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/mongo"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// App is one process of an application. Its methods may be called concurrently.
type App struct {
	cfg         Config
	controllers []controller
	memory      memory
	id          string // of the registration
	met         bool   // a controller answered; only start and then follow use it
	stop        context.CancelFunc
	stopped     chan struct{} // closed at the end of follow
	memoryTried chan struct{} // closed after the first attempt to write the memory
	memoryEnded chan struct{} // closed at the end of keepMemory
	opening     chan struct{} // has an element while MongoAt is called

	mu      sync.Mutex
	name    string       // of the deployment; empty: not known yet
	newest  *pb.Location // newest known location
	heard   time.Time    // when a controller last answered; zero: not yet
	open    *pb.Location // newest open location, for reads; nil: none yet
	changed chan struct{}
	writes  int           // in flight
	idle    chan struct{} // closed when writes reaches 0; nil: nothing waits
	closed  bool
	clients map[string]*mongo.Client // results of MongoAt by cluster
	// cluster is the cluster of Mongo: the recognized one. If the first location comes from an older
	// controller, without identities, it is the cluster of that location.
	cluster    string
	recognized map[string]bool // clusters that a client is known to reach
}

// Open registers the application and learns the place of its data. The caller must close the App.
// While no controller can be reached, Open uses Config.Memory. Without a memory it then fails.
func Open(ctx context.Context, cfg Config) (*App, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("open the application: %w", err)
	}
	controllers, err := cfg.open()
	if err != nil {
		return nil, fmt.Errorf("open the application: %w", err)
	}
	a := &App{
		cfg: cfg, controllers: controllers, memory: memory{cfg.Memory, cfg.Deployment},
		id:      "client-" + cfg.Application + "-" + strings.ToLower(rand.Text()[:16]),
		name:    cmp.Or(cfg.Deployment, memory{file: cfg.Memory}.deploymentOf()),
		changed: make(chan struct{}), stopped: make(chan struct{}), memoryTried: make(chan struct{}), memoryEnded: make(chan struct{}),
		opening: make(chan struct{}, 1), clients: map[string]*mongo.Client{}, recognized: map[string]bool{},
	}
	// Know a location before Open returns, so that the first call does not have to wait.
	first, registered, err := a.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the application: %w", err)
	}
	// The App outlives the call to Open; Close stops it.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	go func() {
		defer close(a.stopped)
		a.follow(following, first, registered)
	}()
	go a.keepMemory(following)
	// A process that ends soon after Open must have a memory all the same.
	awaitMemory(ctx, a.memoryTried)
	return a, nil
}

// Close waits for writes in flight and deregisters the application. Later calls of the App fail.
// After an error the controllers notice the end by themselves, after the TTL at most.
func (a *App) Close(ctx context.Context) error {
	a.mu.Lock()
	// Wake the waiting calls, so that they see closed.
	a.closed = true
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	// Deregister only after the last write: a switch must wait for it.
	drained := a.drained(ctx)
	a.stop()
	<-a.stopped
	gone := a.deregister(ctx)
	awaitMemory(ctx, a.memoryEnded)
	return errors.Join(drained, gone)
}

// Version returns the version that reads use now.
func (a *App) Version() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open.GetVersion()
}

// Holding reports whether writes are held for a switch. changed is closed when another location is
// known.
func (a *App) Holding() (held bool, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newest.GetState() == pb.Location_HOLD, a.changed
}

// Epoch returns the epoch of the place that reads use now.
func (a *App) Epoch() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open.GetEpoch()
}

// Latest asks the controllers for the place of the data. It returns the epoch of the version that is
// open, and whether writes are allowed there: while they are held, open is false. The answer is not
// older than the call, so a caller that compares epochs knows whether the data moved before the call.
func (a *App) Latest(ctx context.Context) (epoch int64, open bool, err error) {
	now, err := a.Ask(ctx)
	return now.Epoch, now.Open, err
}

// Answer is the answer of a controller about the place of the data.
type Answer struct {
	Epoch int64 // of the version that is open
	Open  bool  // writes are allowed there
	// Kept means that a switch keeps all that was written at this version before the question: writes are allowed, or
	// they are held and no fence is announced yet. False with older controllers while writes are held.
	Kept bool
}

// Ask is Latest with everything that a controller reports.
func (a *App) Ask(ctx context.Context) (Answer, error) {
	loc, err := a.ask(ctx)
	if err != nil {
		return Answer{}, fmt.Errorf("ask where the data is: %w", err)
	}
	open := loc.GetState() == pb.Location_OPEN
	return Answer{Epoch: loc.GetEpoch(), Open: open, Kept: open || loc.GetUnfenced()}, nil
}

// Heard returns when a controller last answered; zero: not yet. Controllers answer every few seconds
// also without news.
func (a *App) Heard() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard
}

// Revision returns the revision of the newest known place of the data. It grows, unless the
// deployment's record was lost and recovered.
func (a *App) Revision() int64 { return a.where().GetRevision() }

// Write runs a write at the place of the data. If the data has moved and the database refused the
// write as a whole, Write runs do again at the new place. Write knows that a refusal was whole for
// transactions, and for the methods of Place.Collection that write single documents. So do should
// make one such write: if an operation of do has written and the database refuses a later one,
// Write does not run do again. Write returns
//
//   - the error of do, if no switch is the cause;
//   - ErrNotWritten, if the switch did not end in time: nothing was written;
//   - ErrUnknownOutcome, if the write or a part of it may have happened: a fence may have
//     refused some of several documents after others were written.
func (a *App) Write(ctx context.Context, do func(ctx context.Context, at Place) error) error {
	return a.write(ctx, func(ctx context.Context, at Place, tried *attempt) error {
		at.attempt = tried
		return do(ctx, at)
	})
}

// Transact runs a transaction in the same way as Write runs a write. All operations of do must use
// the ctx that do receives. A write without it is not part of the transaction: the driver may repeat
// it, and a refusal after it ends as ErrUnknownOutcome.
func (a *App) Transact(ctx context.Context, do func(ctx context.Context, at Place) error) error {
	return a.write(ctx, func(ctx context.Context, at Place, tried *attempt) error {
		session, err := at.Client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(context.WithoutCancel(ctx))
		tried.session, at.attempt = session, tried
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, do(ctx, at) })
		tried.whole.Store(true) // the refusal aborted the whole transaction
		return err
	})
}

// write runs do until its outcome is final. Only a refused or aborted run is repeated.
func (a *App) write(ctx context.Context, do func(ctx context.Context, at Place, tried *attempt) error) error {
	p := a.patient(ctx)
	wait := newBackOff()
	for {
		waits, cancel := p.bound(ctx)
		place, seen, err := a.enter(waits)
		again := a.passed(waits, err, seen) && pause(waits, wait) == nil
		cancel()
		if again {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotWritten, err)
		}
		var tried attempt
		began := time.Now()
		err = func() error {
			// Also after a panic in do, or a hold would wait for this write for ever.
			defer a.leave()
			return do(ctx, place, &tried)
		}()
		switch became := tried.became(err); became {
		case done, failed:
			return err
		case unknown:
			return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		case undone:
		case refused, torn:
			// A process that slept in do would otherwise give up without asking.
			p.extend(time.Since(began))
			// A fence is only one possible cause of the refusal. Ask the controllers whether the
			// data moved.
			waits, cancel := p.bound(ctx)
			moved, askErr := a.moved(waits, seen)
			cancel()
			switch {
			case askErr == nil && !moved:
				return err // the application's own validator, view or block
			// The data has moved, and a part of the write may be at the old place.
			case became == torn:
				return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			case askErr != nil:
				return fmt.Errorf("%w: %w; the database said: %w", ErrNotWritten, askErr, err)
			}
		}
		if p.pause(ctx, wait) != nil {
			return fmt.Errorf("%w: %w", ErrNotWritten, err)
		}
	}
}

// Read runs a read at the place of the data, even while writes are held. It repeats the read at the
// new place if the data's move made it fail. do must read its cursors to the end.
func (a *App) Read(ctx context.Context, do func(ctx context.Context, at Place) error) error {
	p := a.patient(ctx)
	wait := newBackOff()
	for {
		waits, cancel := p.bound(ctx)
		place, seen, err := a.readable(waits)
		again := a.passed(waits, err, seen) && pause(waits, wait) == nil
		cancel()
		if again {
			continue
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		began := time.Now()
		err = do(ctx, place)
		// Only an error that a moved collection explains is worth another read.
		if err == nil || !mayHaveMoved(err) {
			return err
		}
		// Reading a long cursor is no wait either.
		p.extend(time.Since(began))
		// During a switch, a rename that ended the read may not be confirmed yet, so repeat the
		// read.
		waits, cancel = p.bound(ctx)
		moved, askErr := a.moved(waits, seen)
		cancel()
		if askErr != nil || !moved && a.where().GetState() == pb.Location_OPEN {
			return err
		}
		if p.pause(ctx, wait) != nil {
			return err
		}
	}
}

// newBackOff returns the pauses between repeated attempts. Only ctx ends them.
func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
}

func pause(ctx context.Context, wait backoff.BackOff) error {
	t := time.NewTimer(wait.NextBackOff())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
