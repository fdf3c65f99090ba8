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

// App is one process of an application.
type App struct {
	cfg         Config
	controllers []controller
	memory      memory
	id          string // of the registration
	met         bool   // a controller; of start and then of follow
	written     moment // of what is in memory; of start and then of follow
	stop        context.CancelFunc
	stopped     chan struct{} // closed when follow has ended

	mu      sync.Mutex
	name    string       // of the deployment, once one is configured, remembered or heard of
	newest  *pb.Location // that was heard of
	open    *pb.Location // the newest that was open: where reads go; nil: none yet
	changed chan struct{}
	writes  int           // in flight
	idle    chan struct{} // closed when writes falls to 0, if somebody waits
	closed  bool
	opening sync.Mutex               // held while MongoAt is called
	clients map[string]*mongo.Client // of MongoAt, by cluster; under opening
	cluster string                   // of the first location: what Mongo is a client of
}

// Open registers the application and finds out where its data is. The caller closes the App.
// While no controller can be reached it goes by Config.Memory; without one it fails.
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
		changed: make(chan struct{}), stopped: make(chan struct{}), clients: map[string]*mongo.Client{},
	}
	first, registered, err := a.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the application: %w", err)
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	go func() {
		defer close(a.stopped)
		a.follow(following, first, registered)
	}()
	return a, nil
}

// Close lets writes in flight end, and tells the controllers that the application is gone. An
// error means that they will notice by themselves.
func (a *App) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	drained := a.drained(ctx)
	a.stop()
	<-a.stopped
	return errors.Join(drained, a.deregister(ctx))
}

// Version is the version that reads go to now.
func (a *App) Version() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open.GetVersion()
}

// Revision is that of the newest location that was heard of. It grows, unless the record of
// the deployment was lost and recovered.
func (a *App) Revision() int64 { return a.where().GetRevision() }

// Write runs a write where the data is, and again where the data has moved to if the database
// refused it as a whole, which is known of methods of Place.Collection that write single
// documents, and of transactions. It should be one of these: if an operation of do has written
// something and a later one is refused, do is not run again. It returns
//
//   - the error of do, if that has nothing to do with a switch;
//   - ErrNotWritten, if the switch did not end in time: nothing was written;
//   - ErrUnknownOutcome, if the write may have been done, or a part of it: of several documents
//     that are written at once or one after the other, some may have been before a fence met the others.
func (a *App) Write(ctx context.Context, do func(ctx context.Context, at Place) error) error {
	return a.write(ctx, func(ctx context.Context, at Place, tried *attempt) error {
		at.attempt = tried
		return do(ctx, at)
	})
}

// Transact runs a transaction as Write does a write. Its statements take the ctx that do gets.
func (a *App) Transact(ctx context.Context, do func(ctx context.Context, at Place) error) error {
	return a.write(ctx, func(ctx context.Context, at Place, tried *attempt) error {
		session, err := at.Client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(context.WithoutCancel(ctx))
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, do(ctx, at) })
		tried.whole.Store(true) // whatever was refused, the transaction was ended with it
		return err
	})
}

func (a *App) write(ctx context.Context, do func(ctx context.Context, at Place, tried *attempt) error) error {
	ctx, cancel := a.patient(ctx)
	defer cancel()
	wait := newBackOff()
	for {
		place, seen, err := a.enter(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotWritten, err)
		}
		var tried attempt
		err = func() error {
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
			moved, askErr := a.moved(ctx, seen)
			switch {
			case askErr == nil && !moved:
				return err // the application's own validator, view or block
			case became == torn:
				return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			case askErr != nil:
				return fmt.Errorf("%w: %w; the database said: %w", ErrNotWritten, askErr, err)
			}
		}
		if pause(ctx, wait) != nil {
			return fmt.Errorf("%w: %w", ErrNotWritten, err)
		}
	}
}

// Read runs a read where the data is, also while writes are held, and again where the data has
// moved to if that is why it failed. A cursor is read within do.
func (a *App) Read(ctx context.Context, do func(ctx context.Context, at Place) error) error {
	ctx, cancel := a.patient(ctx)
	defer cancel()
	wait := newBackOff()
	for {
		place, seen, err := a.readable(ctx)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		err = do(ctx, place)
		if err == nil || !mayHaveMoved(err) {
			return err
		}
		// While a switch is under way the rename that ended a read may not be confirmed yet.
		moved, askErr := a.moved(ctx, seen)
		if askErr != nil || !moved && a.where().GetState() == pb.Location_OPEN {
			return err
		}
		if pause(ctx, wait) != nil {
			return err
		}
	}
}

// patient bounds a call that has no deadline.
func (a *App) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.cfg.Patience)
}

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
