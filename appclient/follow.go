package appclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

const (
	// callTimeout bounds a call that does not wait.
	callTimeout = 2 * time.Second
	// longestPoll bounds the wait of one call for news. After that the App notices a controller
	// that hangs.
	longestPoll = 5 * time.Second
)

// holdID names one request to hold writes. Attempts count from 1 in each upgrade.
type holdID struct {
	upgrade string
	attempt int64
}

// follow renews the registration and waits for new locations until ctx ends. It changes the
// controller after each error.
func (a *App) follow(ctx context.Context, at int, registered time.Time) {
	wait := newBackOff()
	var acked holdID
	var lost error // last logged error
	leave := a.beside(ctx, at)
	defer func() { leave() }()
	for ctx.Err() == nil {
		c := a.controllers[at%len(a.controllers)]
		err := a.guarded("the watch of the controllers", func() error { return a.followOnce(ctx, c, &registered, &acked) })
		if err == nil {
			wait.Reset()
			lost = nil
			continue
		}
		if ctx.Err() != nil {
			return
		}
		lost = a.warnOnce(c, err, lost)
		// Register at the next controller. If the registration has expired, no acknowledgement of
		// it is known there either, so send it again.
		registered, acked = time.Time{}, holdID{}
		at++
		// The second call must wait at another controller than this one does now.
		leave()
		leave = a.beside(ctx, at)
		// Pause after a full round, or after an error that the next controller may repeat.
		if at%len(a.controllers) == 0 || connect.CodeOf(err) != connect.CodeUnavailable {
			_ = pause(ctx, wait) // the loop checks ctx
		}
	}
}

// guarded runs a part of a background goroutine. Config.Recover makes a panic an error.
func (a *App) guarded(where string, do func() error) (err error) {
	if a.cfg.Recover == nil {
		return do()
	}
	defer func() {
		if fault := recover(); fault != nil {
			err = a.cfg.Recover(where, fault)
		}
	}()
	return do()
}

// warnOnce logs the error of a controller, unless it is the last logged one. It returns the error.
func (a *App) warnOnce(c controller, err, last error) error {
	if last == nil || last.Error() != err.Error() {
		a.cfg.Log.Warn("a controller does not answer; asking another one", slog.String("controller", c.address), slog.Any("error", err))
	}
	return err
}

// followOnce registers if due, acknowledges a hold, and waits for news.
func (a *App) followOnce(ctx context.Context, c controller, registered *time.Time, acked *holdID) error {
	// A third of the TTL leaves time for two failed attempts before the registration expires.
	if time.Since(*registered) > a.cfg.TTL/3 {
		if err := a.register(ctx, c); err != nil {
			return err
		}
		*registered = time.Now()
	}
	return a.await(ctx, c, a.id, acked)
}

// await waits at a controller for news, and acknowledges a hold there. The id shows the controller that
// the application is alive; empty: it need not know.
func (a *App) await(ctx context.Context, c controller, id string, acked *holdID) error {
	loc := a.where()
	asked := holdID{loc.GetUpgradeId(), loc.GetAttempt()}
	// Acknowledge each hold once.
	if loc.GetState() != pb.Location_HOLD || asked.upgrade == "" || *acked == asked {
		return a.poll(ctx, c, id, loc.GetRevision())
	}
	// Wait for the writes in flight beside the call for news. If the process dies meanwhile, the call
	// breaks, and the controller sees that it waits in vain.
	polling, stop := context.WithCancel(ctx)
	defer stop()
	var ackErr error
	var g sync.WaitGroup
	g.Go(func() {
		ackErr = a.guarded("the acknowledgement of a hold", func() error {
			if a.drained(polling) != nil {
				return nil // the next call of await waits again if it is still a hold
			}
			err := a.ackHold(ctx, c, asked)
			if err == nil {
				*acked = asked
			}
			return err
		})
		if ackErr != nil {
			stop()
		}
	})
	err := a.poll(polling, c, id, loc.GetRevision())
	stop()
	g.Wait()
	return cmp.Or(ackErr, err)
}

// poll waits at a controller for a location that is newer than a revision. It ends without one after
// longestPoll at most.
func (a *App) poll(ctx context.Context, c controller, id string, revision int64) error {
	poll := min(a.cfg.TTL/3, longestPoll)
	// The controller answers after poll at the latest, so a later answer means that it hangs.
	bounded, cancel := context.WithTimeout(ctx, poll+callTimeout)
	defer cancel()
	res, err := c.GetLocation(bounded, connect.NewRequest(&pb.GetLocationRequest{
		Name: a.deployment(), ClientId: id, WaitRevision: revision, TimeoutMs: int32(poll.Milliseconds()),
	}))
	if err != nil {
		return err
	}
	return a.hear(res.Msg)
}

// ackHold acknowledges that writes are held. FailedPrecondition means that the controller no longer
// waits for it, which is no error here.
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

// hear adopts the location that a controller sent.
func (a *App) hear(loc *pb.Location) error {
	a.mu.Lock()
	a.heard = time.Now()
	a.mu.Unlock()
	return a.accept(loc)
}

// register registers at a controller and adopts the location in its answer.
func (a *App) register(ctx context.Context, c controller) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.RegisterClient(bounded, connect.NewRequest(&pb.RegisterClientRequest{
		Name: a.deployment(), Application: a.cfg.Application, ClientId: a.id, TtlMs: int32(a.cfg.TTL.Milliseconds()),
	}))
	if err != nil {
		return err
	}
	// Close has to deregister from now on.
	a.met = true
	return a.hear(res.Msg.GetLocation())
}

// deregister tells one controller that the application is gone.
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

// moved reports whether the present location is newer than seen. It asks all controllers at once,
// because one may hang, and repeats that until one answers.
func (a *App) moved(ctx context.Context, seen moment) (bool, error) {
	wait := newBackOff()
	for {
		// follow may have received a newer location meanwhile, which saves the question.
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

// passed reports whether err says that a client does not reach the data, and the data has moved since
// the location seen. A switch or a new collection then explains the error.
func (a *App) passed(ctx context.Context, err error, seen moment) bool {
	if !errors.As(err, new(otherClusterError)) {
		return false
	}
	moved, askErr := a.moved(ctx, seen)
	return askErr == nil && moved
}

// ask returns the first answer of a controller, after adopting it.
func (a *App) ask(ctx context.Context) (*pb.Location, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	type answer struct {
		loc *pb.Location
		err error
	}
	// Buffered, so that late answers do not block their goroutines.
	answers := make(chan answer, len(a.controllers))
	for _, c := range a.controllers {
		go func() {
			var loc *pb.Location
			err := a.guarded("a question to a controller", func() error {
				res, err := c.GetLocation(ctx, connect.NewRequest(&pb.GetLocationRequest{Name: a.deployment()}))
				if err != nil {
					return err
				}
				loc = res.Msg
				return a.hear(loc)
			})
			if err != nil {
				answers <- answer{err: fmt.Errorf("%s: %w", c.address, err)}
				return
			}
			answers <- answer{loc: loc}
		}()
	}
	var errs []error
	for range a.controllers {
		one := <-answers
		// The deferred cancel ends the other calls.
		if one.err == nil {
			return one.loc, nil
		}
		errs = append(errs, one.err)
	}
	return nil, errors.Join(errs...)
}
