package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dbcontroller.dev/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// lostLook is how long a verb waits for the database of the version that is served.
const lostLook = 8 * time.Second

// ServedLost refuses a rollback whose switch could never begin: the database of the version that
// is served is lost, or does not answer. It names the verb that needs no such database.
func (a *App) ServedLost(ctx context.Context, d upgradestate.Deployment) error {
	db := a.databases[d.CurrentVersion]
	if db == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, lostLook)
	defer cancel()
	err := db.Open(bounded)
	if err == nil {
		err = a.belongs(bounded, d.CurrentVersion)
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return ctx.Err()
	case identity.IsLost(err):
		return &upgradestate.RefusedError{Reason: a.withWayBack(d, err).Error()}
	case a.backend.Unavailable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, record.ErrUnavailable):
		return refusal.New(refusal.DatabaseUnavailable, a.withWayBack(d, fmt.Errorf("database of %s: it does not answer: %w", d.CurrentVersion, err)))
	default:
		return nil // the switch waits for what else is wrong, and says so
	}
}

// withWayBack adds to an error, by which the database of the version that is served is lost, how
// to go on without it.
func (a *App) withWayBack(d upgradestate.Deployment, err error) error {
	switch last := d.LastSwitch; {
	case last == nil || last.To != d.CurrentVersion || upgradestate.Retired(d, last.From):
		return err
	case last.Back:
		return fmt.Errorf("%w; if it is lost for good, stop all controllers and run 'dbcontroller recover --config %s --current %s'", err, a.cfg.File, last.From)
	default:
		return fmt.Errorf("%w; if it is lost for good, stop all controllers and run 'dbcontroller rollback --to-snapshot --offline --new-database-lost --config %s', "+
			"which goes back to %s with what it has (docs/break-glass.md)", err, a.cfg.File, last.From)
	}
}
