package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/mongo"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// application is an existing program with a collection of its own. It knows MongoDB and
// the Deployment API, and nothing else of this project: it asks where its data is, holds
// its writes when it is told to, says so, and goes on where the data is then.
type application struct {
	apis  []dbcontrollerv1connect.DeploymentServiceClient // of all controllers; any will do
	mongo *mongo.Client
	id    string // of its registration
	ttl   time.Duration

	mu       sync.Mutex
	location *dbv1.Location
	news     chan struct{} // closed and replaced when location changed
	inflight int
	idle     chan struct{} // closed when inflight falls to 0, if somebody waits
}

// registrationTTL is how long the controllers remember an application that is gone.
const registrationTTL = 10 * time.Second

// register tells the controllers of the application, and learns where its data is.
func register(ctx context.Context, apis []dbcontrollerv1connect.DeploymentServiceClient, m *mongo.Client) (*application, error) {
	a := &application{apis: apis, mongo: m, news: make(chan struct{})}
	res, err := a.apis[0].RegisterClient(ctx, connect.NewRequest(&dbv1.RegisterClientRequest{
		Application: "packages", TtlMs: int32(registrationTTL.Milliseconds()),
	}))
	if err != nil {
		return nil, fmt.Errorf("register the application: %w", err)
	}
	a.id, a.ttl = res.Msg.GetClientId(), time.Duration(res.Msg.GetTtlMs())*time.Millisecond
	a.accept(res.Msg.GetLocation())
	return a, nil
}

// follow waits for news of the location until ctx ends: holds, acknowledges, goes on.
func (a *application) follow(ctx context.Context) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(0))
	var acked holdID
	for try := 0; ctx.Err() == nil; try++ {
		err := a.followOnce(ctx, try, &acked)
		if err == nil {
			retry.Reset()
			continue
		}
		// Another controller may know: one that stops ends its long calls.
		if err := sleep(ctx, retry.NextBackOff()); err != nil {
			break
		}
	}
	return nil
}

// holdID names a moment at which writes are to be held: attempts begin anew with each upgrade.
type holdID struct {
	upgrade string
	attempt int64
}

func (a *application) followOnce(ctx context.Context, try int, acked *holdID) error {
	api := a.apis[try%len(a.apis)]
	loc := a.where()
	asked := holdID{loc.GetUpgradeId(), loc.GetAttempt()}
	if loc.GetState() == dbv1.Location_HOLD && asked.upgrade != "" && *acked != asked {
		if err := a.drained(ctx); err != nil {
			return err
		}
		if _, err := api.AckHold(ctx, connect.NewRequest(&dbv1.AckHoldRequest{
			ClientId: a.id, UpgradeId: loc.GetUpgradeId(), Attempt: loc.GetAttempt(),
		})); err != nil && connect.CodeOf(err) != connect.CodeFailedPrecondition {
			return err
		}
		*acked = asked
	}
	res, err := api.GetLocation(ctx, connect.NewRequest(&dbv1.GetLocationRequest{WaitRevision: loc.GetRevision(), TimeoutMs: 10_000}))
	if err != nil {
		return err
	}
	a.accept(res.Msg)
	return nil
}

// renew keeps the registration until ctx ends.
func (a *application) renew(ctx context.Context) error {
	tick := time.NewTicker(a.ttl / 3)
	defer tick.Stop()
	for try := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, a.ttl/3)
		_, err := a.apis[try%len(a.apis)].RegisterClient(bounded, connect.NewRequest(&dbv1.RegisterClientRequest{
			ClientId: a.id, TtlMs: int32(a.ttl.Milliseconds()),
		}))
		cancel()
		if err != nil {
			try++ // the next controller, at the next tick: two may fail before the registration ends
		}
	}
}

// accept takes a location, unless it is older than the one at hand.
func (a *application) accept(loc *dbv1.Location) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.location != nil && loc.GetRevision() <= a.location.GetRevision() {
		return
	}
	a.location = loc
	close(a.news)
	a.news = make(chan struct{})
}

func (a *application) where() *dbv1.Location {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.location
}

// ask fetches the location now, for one who has reason to think that it changed.
func (a *application) ask(ctx context.Context) (*dbv1.Location, error) {
	var err error
	for _, api := range a.apis {
		var res *connect.Response[dbv1.Location]
		if res, err = api.GetLocation(ctx, connect.NewRequest(&dbv1.GetLocationRequest{})); err == nil {
			a.accept(res.Msg)
			return res.Msg, nil
		}
	}
	return nil, fmt.Errorf("ask for the location: %w", err)
}

// enter waits until writing is allowed and returns where. Every enter needs a leave.
func (a *application) enter(ctx context.Context) (*dbv1.Location, error) {
	for {
		a.mu.Lock()
		loc, news := a.location, a.news
		if loc.GetState() == dbv1.Location_OPEN {
			a.inflight++
			a.mu.Unlock()
			return loc, nil
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-news:
		}
	}
}

func (a *application) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inflight--; a.inflight == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// drained waits until nothing is in flight. It makes sense only while writes are held.
func (a *application) drained(ctx context.Context) error {
	a.mu.Lock()
	if a.inflight == 0 {
		a.mu.Unlock()
		return nil
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-idle:
		return nil
	}
}

// collection is the application's collection at a location.
func (a *application) collection(loc *dbv1.Location) (*mongo.Collection, error) {
	for _, k := range loc.GetKinds() {
		if k.GetKind() == packagesKind {
			return a.mongo.Database(k.GetDatabase()).Collection(k.GetCollection()), nil
		}
	}
	return nil, fmt.Errorf("the location of %s is not known", packagesKind)
}

var errMoved = errors.New("the data is no longer where it was")

// write makes a write where the data is. do returns errMoved, or an error of a fence,
// when it wrote nothing and the data may be elsewhere: the application then asks, and
// writes again where it is told. It returns the version written to.
func (a *application) write(ctx context.Context, do func(ctx context.Context, c *mongo.Collection, version string) error) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(250*time.Millisecond), backoff.WithMaxElapsedTime(callPatience))
	missed := int64(0) // revision at which the data was not there
	for {
		loc, err := a.enter(ctx)
		if err != nil {
			return "", err
		}
		c, err := a.collection(loc)
		if err == nil {
			err = do(ctx, c, loc.GetVersion())
		}
		a.leave()
		if err == nil {
			return loc.GetVersion(), nil
		}
		if !errors.Is(err, errMoved) && !fenced(err) {
			return "", fmt.Errorf("%w: %w", errUnknownOutcome, err)
		}
		now, askErr := a.ask(ctx)
		if askErr != nil {
			return "", errors.Join(err, askErr)
		}
		if errors.Is(err, errMoved) && now.GetState() == dbv1.Location_OPEN && now.GetRevision() == loc.GetRevision() {
			if missed == now.GetRevision() {
				return "", fmt.Errorf("%w, and is nowhere else", err)
			}
			missed = now.GetRevision()
		}
		if sleep(ctx, policy.NextBackOff()) != nil {
			return "", err
		}
	}
}

// fenced recognises how MongoDB refuses what is sent to a fenced collection; nothing was
// written then.
func fenced(err error) bool {
	const (
		validationFailure = 121 // a validator
		notOnView         = 166
		failingView       = 241 // one that is there to be noticed
		wrongUUID         = 361
		writesBlocked     = 371
	)
	var se mongo.ServerError
	if !errors.As(err, &se) {
		return false
	}
	return slices.ContainsFunc([]int{validationFailure, notOnView, failingView, wrongUUID, writesBlocked}, se.HasErrorCode)
}

// sleep waits, unless ctx ends or backoff says that it is enough.
func sleep(ctx context.Context, d time.Duration) error {
	if d == backoff.Stop {
		return context.DeadlineExceeded
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
