package appclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

const (
	// callTimeout bounds a call that does not wait for anything.
	callTimeout = 2 * time.Second
	// longestPoll bounds how long one call waits for news. A controller that stands still is
	// noticed after that.
	longestPoll = 5 * time.Second
	// drainLook is how often the location is looked at while writes in flight do not end.
	drainLook = 100 * time.Millisecond
)

// start registers, or goes by what is remembered if no controller answers. It returns the controller that answered, and
// when; zero: none did.
func (a *App) start(ctx context.Context) (first int, registered time.Time, err error) {
	bounded, cancel := context.WithTimeout(ctx, a.cfg.StartTimeout)
	defer cancel()
	wait := newBackOff()
	var said []string // by each controller, lately
	for {
		var now []string
		others := 0
		for i, c := range a.controllers {
			err := a.register(bounded, c)
			if err == nil {
				a.remember(ctx)
				return i, time.Now(), nil
			}
			if permanent(err) {
				return 0, time.Time{}, fmt.Errorf("register at %s: %w", c.address, err)
			}
			if errors.As(err, new(otherDeploymentError)) {
				others++
			}
			now = append(now, c.address+": "+err.Error())
		}
		if others == len(a.controllers) {
			return 0, time.Time{}, errors.New(strings.Join(now, "; ")) // time does not change whose they are
		}
		if said == nil || bounded.Err() == nil { // else it only says that time is over
			said = now
		}
		if pause(bounded, wait) == nil {
			continue
		}
		if ctx.Err() != nil {
			return 0, time.Time{}, ctx.Err()
		}
		err := fmt.Errorf("no controller can be reached (%s)", strings.Join(said, "; "))
		loc, why := a.memory.recall(ctx, a)
		if why != nil {
			return 0, time.Time{}, fmt.Errorf("%w, and %w", err, why)
		}
		a.cfg.Log.Warn("no controller can be reached: going on where the data was", slog.String("version", loc.GetVersion()))
		return 0, time.Time{}, a.accept(loc)
	}
}

// permanent reports whether no controller will answer otherwise.
func permanent(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	}
	return false
}

// holdID names a moment at which writes are to be held: attempts begin anew with each upgrade.
type holdID struct {
	upgrade string
	attempt int64
}

// follow keeps the registration and takes news of the location until ctx ends, at one
// controller after the other.
func (a *App) follow(ctx context.Context, at int, registered time.Time) {
	wait := newBackOff()
	var acked holdID
	var lost error // what was said of a controller that does not answer
	for ctx.Err() == nil {
		c := a.controllers[at%len(a.controllers)]
		err := a.followOnce(ctx, c, &registered, &acked)
		if err == nil {
			wait.Reset()
			lost = nil
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if lost == nil || lost.Error() != err.Error() {
			a.cfg.Log.Warn("a controller does not answer; asking another one", slog.String("controller", c.address), slog.Any("error", err))
		}
		// The next one holds the registration, and knows nothing of what was acknowledged if
		// that has ended meanwhile.
		lost, registered, acked = err, time.Time{}, holdID{}
		at++
		if at%len(a.controllers) == 0 || connect.CodeOf(err) != connect.CodeUnavailable {
			_ = pause(ctx, wait) // its end is seen above
		}
	}
}

// followOnce registers if it is time to, acknowledges a hold, and waits for news.
func (a *App) followOnce(ctx context.Context, c controller, registered *time.Time, acked *holdID) error {
	if time.Since(*registered) > a.cfg.TTL/3 {
		if err := a.register(ctx, c); err != nil {
			return err
		}
		*registered = time.Now()
	}
	loc := a.where()
	poll := min(a.cfg.TTL/3, longestPoll)
	asked := holdID{loc.GetUpgradeId(), loc.GetAttempt()}
	if loc.GetState() == pb.Location_HOLD && asked.upgrade != "" && *acked != asked {
		drained, cancel := context.WithTimeout(ctx, drainLook)
		err := a.drained(drained)
		cancel()
		if err != nil {
			poll = time.Millisecond // what it holds for may be over
		} else {
			if err := a.ackHold(ctx, c, asked); err != nil {
				return err
			}
			*acked = asked
		}
	}
	bounded, cancel := context.WithTimeout(ctx, poll+callTimeout)
	defer cancel()
	res, err := c.GetLocation(bounded, connect.NewRequest(&pb.GetLocationRequest{
		Name: a.deployment(), ClientId: a.id, WaitRevision: loc.GetRevision(), TimeoutMs: int32(poll.Milliseconds()),
	}))
	if err != nil {
		return err
	}
	if err := a.accept(res.Msg); err != nil {
		return err
	}
	a.remember(ctx)
	return nil
}

// ackHold says that writes are held. A controller that does not wait for it any longer says so
// as an error, which is none here.
func (a *App) ackHold(ctx context.Context, c controller, asked holdID) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.AckHold(bounded, connect.NewRequest(&pb.AckHoldRequest{
		Name: a.deployment(), ClientId: a.id, UpgradeId: asked.upgrade, Attempt: asked.attempt,
	}))
	if connect.CodeOf(err) == connect.CodeFailedPrecondition {
		return nil
	}
	return err
}

func (a *App) register(ctx context.Context, c controller) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.RegisterClient(bounded, connect.NewRequest(&pb.RegisterClientRequest{
		Name: a.deployment(), Application: a.cfg.Application, ClientId: a.id, TtlMs: int32(a.cfg.TTL.Milliseconds()),
	}))
	if err != nil {
		return err
	}
	a.met = true
	return a.accept(res.Msg.GetLocation())
}

func (a *App) deregister(ctx context.Context) error {
	if !a.met {
		return nil
	}
	var err error
	for _, c := range a.controllers {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		_, err = c.DeregisterClient(bounded, connect.NewRequest(&pb.DeregisterClientRequest{Name: a.deployment(), ClientId: a.id}))
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("deregister the application: %w", err)
}

// moved reports whether the location is newer than one that was seen, for a caller who has
// reason to think so. All controllers are asked at once, since one may stand still, until one
// answers.
func (a *App) moved(ctx context.Context, seen moment) (bool, error) {
	wait := newBackOff()
	for {
		if seen.before(momentOf(a.where())) {
			return true, nil
		}
		loc, err := a.ask(ctx)
		if err == nil {
			return seen.before(momentOf(loc)), nil
		}
		if pause(ctx, wait) != nil {
			return false, fmt.Errorf("ask where the data is: %w", err)
		}
	}
}

// ask returns the first answer of a controller, which is accepted already.
func (a *App) ask(ctx context.Context) (*pb.Location, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	type answer struct {
		loc *pb.Location
		err error
	}
	answers := make(chan answer, len(a.controllers))
	for _, c := range a.controllers {
		go func() {
			res, err := c.GetLocation(ctx, connect.NewRequest(&pb.GetLocationRequest{Name: a.deployment()}))
			if err == nil {
				err = a.accept(res.Msg)
			}
			if err != nil {
				answers <- answer{err: fmt.Errorf("%s: %w", c.address, err)}
				return
			}
			answers <- answer{loc: res.Msg}
		}()
	}
	var errs []error
	for range a.controllers {
		one := <-answers
		if one.err == nil {
			return one.loc, nil
		}
		errs = append(errs, one.err)
	}
	return nil, errors.Join(errs...)
}
