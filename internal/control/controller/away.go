package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// A rollback needs the database of the version before the latest switch. Nothing else may read that
// database for long, so each controller asks it from time to time.

const (
	// lookAtBack is the interval of these questions.
	lookAtBack = 5 * time.Second
	// backAnswers is the longest wait for an answer.
	backAnswers = 10 * time.Second
)

// wayBack knows why a rollback is not possible now.
type wayBack struct {
	*connections
	cfg        Settings
	backend    Backend
	deployment *deployment.Store
	marks      *marks
	back       silence // why the database that a rollback needs does not answer
	log        *zap.Logger
}

// silence holds the reason why a version's database does not answer.
type silence struct {
	mu      sync.Mutex
	version string
	err     error // nil: it answers
}

func (w *silence) set(version string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version, w.err = version, err
}

func (w *silence) why(version string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.version != version {
		return nil
	}
	return w.err
}

// watchBack keeps the reason that BackAway returns, until ctx ends.
func (w *wayBack) watchBack(ctx context.Context) error {
	return recordloop.Aside(ctx, w.deployment, w.log, w.looking(ctx))
}

// looking returns the work of watchBack. The record changes often, and most changes say nothing
// about the database. So it asks again only after lookAtBack, or if another database is needed.
func (w *wayBack) looking(ctx context.Context) recordloop.Do {
	var asked string
	var at time.Time
	return func(d upgradestate.Deployment) (time.Duration, error) {
		version, db := w.backDatabase(d)
		if left := lookAtBack - time.Since(at); version == asked && left > 0 {
			return left, nil
		}
		if db != nil {
			w.back.set(version, w.lookAtBack(ctx, version, db))
		}
		asked, at = version, time.Now()
		return lookAtBack, nil
	}
}

// backDatabase returns the version before the latest switch and its database. The database is nil
// if no rollback needs it here.
func (w *wayBack) backDatabase(d upgradestate.Deployment) (string, Connection) {
	last := d.LastSwitch
	if last == nil || upgradestate.Retired(d, last.From) {
		return "", nil
	}
	if db, configured := w.cfg.Database(last.From); !configured || db.Disabled {
		return last.From, nil
	}
	return last.From, w.databases[last.From]
}

// lookAtBack returns an error if an open database does not answer, or if it is lost. A closed one has
// a Problem.
func (w *wayBack) lookAtBack(ctx context.Context, version string, db Connection) error {
	if !db.Opened() {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, backAnswers)
	defer cancel()
	_, err := db.Marks(bounded)
	switch {
	case err == nil:
		// A dropped database answers as well, and so does an empty server in its place.
		if lost := identity.Same(bounded, w.deployment, map[string]record.Marker{version: db}); identity.IsLost(lost) {
			return lost
		}
		return nil
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, record.ErrUnavailable), w.backend.Unavailable(err):
		return fmt.Errorf("database of %s does not answer: %w", version, err)
	default:
		return nil // the sync and the checks before a switch report other errors
	}
}

// BackAway explains why the database that a rollback needs cannot be used now. It returns "" if
// nothing is known against it.
func (w *wayBack) BackAway(d upgradestate.Deployment) string {
	version, db := w.backDatabase(d)
	if db == nil {
		return ""
	}
	err := db.Problem()
	if err == nil {
		err = w.back.why(version)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}
