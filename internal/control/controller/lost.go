package controller

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/internal/control/controller/cleanup"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// ServedLost refuses a rollback that could never switch, because the database of the current
// version is lost or does not answer. The error names the command that works without this database.
func (w *wayBack) ServedLost(ctx context.Context, d upgradestate.Deployment) error {
	db := w.databases[d.CurrentVersion]
	if db == nil {
		return nil
	}
	// The caller waits for the answer, and the driver would retry for longer.
	bounded, cancel := context.WithTimeout(ctx, cleanup.CommandWait)
	defer cancel()
	err := db.Open(bounded)
	if err == nil {
		err = w.marks.belongs(bounded, d.CurrentVersion)
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return ctx.Err()
	case identity.IsLost(err):
		return &upgradestate.RefusedError{Reason: w.cfg.withWayBack(d, err).Error()}
	case w.backend.Unavailable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, record.ErrUnavailable):
		return refusal.New(refusal.DatabaseUnavailable, w.cfg.withWayBack(d, fmt.Errorf("database of %s: it does not answer: %w", d.CurrentVersion, err)))
	default:
		return nil // the switch waits for any other error and reports it
	}
}

// withWayBack adds to an error about a lost current database the command that goes on without it.
func (s Settings) withWayBack(d upgradestate.Deployment, err error) error {
	switch last := d.LastSwitch; {
	// Only the latest switch can be undone, and only if its source still exists.
	case last == nil || last.To != d.CurrentVersion || upgradestate.Retired(d, last.From):
		return err
	case last.Back:
		return fmt.Errorf("%w; if it is lost for good, stop all controllers and run 'dbcontroller recover --config %s --current %s'", err, s.File, last.From)
	default:
		return fmt.Errorf("%w; if it is lost for good, stop all controllers and run 'dbcontroller rollback --to-snapshot --offline --new-database-lost --config %s', "+
			"which returns to %s with the data that it has (docs/break-glass.md)", err, s.File, last.From)
	}
}
