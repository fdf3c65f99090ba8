package appclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// start registers, or uses the memory if no controller answers. It returns the index of the
// controller that answered, and the time; zero if none did.
func (a *App) start(ctx context.Context) (first int, registered time.Time, err error) {
	bounded, cancel := context.WithTimeout(ctx, a.cfg.StartTimeout)
	defer cancel()
	wait := newBackOff()
	var said []string // last answers, by controller
	for {
		var now []string
		var errs []error
		var round tally
		for i, c := range a.controllers {
			err := a.register(bounded, c)
			if err == nil {
				return i, time.Now(), nil
			}
			round.count(err)
			now = append(now, c.address+": "+err.Error())
			errs = append(errs, fmt.Errorf("register at %s: %w", c.address, err))
		}
		if round.final(len(a.controllers)) {
			return 0, time.Time{}, errors.Join(errs...)
		}
		if said == nil || bounded.Err() == nil { // later errors only say that the time is over
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

// tally counts what the controllers answered in one round. A controller that did not answer does
// not count.
type tally struct {
	refused   int // with an answer that time does not change
	others    int // of another deployment
	undecided int // with any other answer, such as "stopping"
}

func (r *tally) count(err error) {
	switch {
	case permanent(err):
		r.refused++
	case errors.As(err, new(otherDeploymentError)):
		r.others++
	case connect.IsWireError(err):
		r.undecided++
	}
}

// final reports whether later rounds will fail in the same way. One controller alone may be wrong: it
// may not have read a new token yet, or an address may be wrong.
func (r *tally) final(controllers int) bool {
	return r.others == controllers || r.refused > 0 && r.undecided == 0
}

// permanent reports whether a controller refuses the application. An error that comes from another
// program, such as its status 404, says nothing about controllers.
func permanent(err error) bool {
	if !connect.IsWireError(err) {
		return false
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	}
	return false
}
