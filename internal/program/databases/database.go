package databases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/base/watchedfile"
	"dbcontroller.dev/record"
)

// retryOpen is the pause after a failed attempt to open a database. Calls during the pause get the
// error of that attempt at once.
const retryOpen = time.Second

var errClosed = errors.New("the process ends")

// Database is one configured database. The first caller that needs it opens it. It is safe for
// concurrent use.
type Database struct {
	db     config.DB
	engine engine
	how    Config
	cfg    config.Config
	file   string          // for messages
	life   context.Context // of the Set; shared attempts run in it
	of     *Database       // the ordinary Database, if this one is quiet; otherwise nil

	// keys follow the configuration. The first attempt to open sets them.
	keys atomic.Pointer[watchedfile.Value[*held]]

	opened atomic.Pointer[way]   // with the present login
	former atomic.Uint64         // connections of former logins
	quiet  atomic.Pointer[quiet] // of a quiet Database

	mu       sync.Mutex
	attempt  chan struct{} // closed at the end of the running attempt; nil: none runs
	problem  error         // of the latest attempt
	retryAt  time.Time
	closed   bool
	look     chan struct{} // requests an immediate check of the login
	renewing chan struct{} // closed when renew ends; nil: renew does not run
}

// quiet pairs a way with its quiet form.
type quiet struct{ of, now *way }

// Quietly returns the same database over the same connections, used so that other clients do not
// notice (Config.Quiet).
func (d *Database) Quietly() *Database { return &Database{db: d.db, engine: d.engine, of: d} }

// Opened reports whether the database is open.
func (d *Database) Opened() bool {
	if d.of != nil {
		return d.of.Opened()
	}
	return d.opened.Load() != nil
}

// Problem returns the error of the latest attempt to open the database. It is nil if the database
// is open, or was not needed yet.
func (d *Database) Problem() error {
	if d.Opened() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problem
}

// Refused reports whether an error means that the database answers and refuses this process, or that
// its configuration cannot be used. A person has to correct that. It is false for silence.
func (d *Database) Refused(err error) bool {
	if err == nil || d.engine.unavailable(err) {
		return false
	}
	// An attempt to open it fails in another way only for what a person must correct.
	return !d.Opened() || d.engine.loginRefused(err) || d.engine.unprivileged(err)
}

// Get returns the open database. It starts or joins an attempt to open it. Within retryOpen after a
// failure it returns that error.
func (d *Database) Get(ctx context.Context) (Space, error) {
	w, err := d.way(ctx)
	if err != nil {
		return nil, err
	}
	return w.Space, nil
}

func (d *Database) way(ctx context.Context) (*way, error) {
	if d.of != nil {
		w, err := d.of.way(ctx)
		if err != nil {
			return nil, err
		}
		q := d.quiet.Load()
		// A new login means new connections, so the quiet form must change with them.
		if q == nil || q.of != w {
			q = &quiet{w, &way{Space: w.Quietly(), backend: w.backend}}
			d.quiet.Store(q)
		}
		return q.now, nil
	}
	if w := d.opened.Load(); w != nil {
		return w, nil
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, fmt.Errorf("database of %s: %w", d.db.Version, errClosed)
	}
	if d.attempt == nil {
		if d.problem != nil && time.Now().Before(d.retryAt) {
			defer d.mu.Unlock()
			return nil, d.problem
		}
		// The attempt outlives this caller: others may wait for the same one.
		d.attempt = make(chan struct{})
		go d.try()
	}
	attempt := d.attempt
	d.mu.Unlock()
	select {
	case <-attempt:
	case <-ctx.Done():
		// An earlier failure says more than the caller's deadline.
		if problem := d.Problem(); problem != nil {
			return nil, problem
		}
		return nil, fmt.Errorf("database of %s does not answer yet: %w (%w)", d.db.Version, record.ErrUnavailable, ctx.Err())
	}
	if w := d.opened.Load(); w != nil {
		return w, nil
	}
	return nil, d.Problem()
}

// try makes the running attempt on behalf of all waiting callers.
func (d *Database) try() {
	used := &d.db
	var w *way
	login, err := d.db.WatchLogin(d.how.Log)
	if err == nil {
		err = d.watchKeys()
	}
	if err == nil {
		used = login.Get()
		w, err = d.open(d.life, *used)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.opened.Store(w)
		// Only a login that comes from files can change.
		if d.db.HasFiles() {
			d.renewing = make(chan struct{})
			go d.renew(login, used)
		}
		if d.problem != nil {
			d.how.Log.Info("database is open", zap.String("version", d.db.Version))
		}
	} else if d.life.Err() == nil && (d.problem == nil || d.problem.Error() != err.Error()) {
		// Log each reason once: an outage may last.
		d.how.Log.Warn("database cannot be opened", zap.String("version", d.db.Version), zap.Error(err),
			zap.Bool("tried again", errors.Is(err, record.ErrUnavailable)))
	}
	d.problem, d.retryAt = err, time.Now().Add(retryOpen)
	close(d.attempt)
	d.attempt = nil
}

// Wait opens the database. It retries while the database is unavailable, until ctx ends. The error
// is the reason that the database is not open; it is record.ErrUnavailable if a retry could help.
func (d *Database) Wait(ctx context.Context) error {
	for {
		_, err := d.Get(ctx)
		// Errors other than an outage do not pass by waiting.
		if err == nil || ctx.Err() != nil || !errors.Is(err, record.ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryOpen):
		}
	}
}

// retryRefused is the pause after an error that a person must correct.
const retryRefused = 10 * time.Second

// Keep retries after every error, until the database is open or ctx ends.
func (d *Database) Keep(ctx context.Context) error {
	for {
		err := d.Wait(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryRefused):
		}
	}
}

// close waits for a running attempt and closes all connections.
func (d *Database) close(ctx context.Context) {
	d.mu.Lock()
	// Set it before waiting, so that no further attempt can start.
	d.closed = true
	attempt := d.attempt
	d.mu.Unlock()
	if attempt != nil {
		<-attempt
	}
	// The attempt that just ended may have started renew.
	d.mu.Lock()
	renewing := d.renewing
	d.mu.Unlock()
	if renewing != nil {
		<-renewing
	}
	if w := d.opened.Load(); w != nil {
		d.end(ctx, w)
	}
}
