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
	"dbcontroller.dev/record"
	"dbcontroller.dev/watchedfile"
)

// retryOpen is how long a database that could not be opened is left alone: callers that come
// meanwhile get the reason at once.
const retryOpen = time.Second

var errClosed = errors.New("the process ends")

// Database is one database of the configuration: open, or opened by who needs it first. Its
// methods may be called concurrently.
type Database struct {
	db     config.DB
	engine engine
	how    Config
	cfg    config.Config
	file   string          // of the configuration, for messages
	life   context.Context // of the Set, in which attempts run: they are shared by who waits
	of     *Database       // that this one is, as nobody else feels it; nil for all others

	// keys are those of the configuration, from the first attempt on.
	keys atomic.Pointer[watchedfile.Value[*held]]

	opened atomic.Pointer[way]   // that of the present login
	quiet  atomic.Pointer[quiet] // of one that has of

	mu       sync.Mutex
	attempt  chan struct{} // closed when the attempt that runs ends; nil: none runs
	problem  error         // of the latest attempt
	retryAt  time.Time
	closed   bool
	look     chan struct{} // asks for a look at the login at once
	renewing chan struct{} // closed when the login is not followed any longer; nil: it is not
}

// quiet is a way and how it is used quietly.
type quiet struct{ of, now *way }

// Quietly is the same database, over the same connections, as nobody else on its server feels
// it (Config.Quiet).
func (d *Database) Quietly() *Database { return &Database{db: d.db, engine: d.engine, of: d} }

// Opened reports whether the database is open.
func (d *Database) Opened() bool {
	if d.of != nil {
		return d.of.Opened()
	}
	return d.opened.Load() != nil
}

// Problem says why the database is not open, as far as somebody tried; nil if it is open, or
// nobody needed it yet.
func (d *Database) Problem() error {
	if d.Opened() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problem
}

// Get returns the open database. It makes an attempt where there was none lately, and
// otherwise says why the latest one failed.
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
		d.attempt = make(chan struct{})
		go d.try()
	}
	attempt := d.attempt
	d.mu.Unlock()
	select {
	case <-attempt:
	case <-ctx.Done():
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

// try makes the one attempt that runs, for all who wait.
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
		if d.db.HasFiles() {
			d.renewing = make(chan struct{})
			go d.renew(login, used)
		}
		if d.problem != nil {
			d.how.Log.Info("database is open", zap.String("version", d.db.Version))
		}
	} else if d.life.Err() == nil && (d.problem == nil || d.problem.Error() != err.Error()) {
		// Once for each reason: it may last.
		d.how.Log.Warn("database cannot be opened", zap.String("version", d.db.Version), zap.Error(err),
			zap.Bool("tried again", errors.Is(err, record.ErrUnavailable)))
	}
	d.problem, d.retryAt = err, time.Now().Add(retryOpen)
	close(d.attempt)
	d.attempt = nil
}

// Wait opens the database, trying for as long as it is unavailable and ctx lasts. The error
// says why it is not open: it is record.ErrUnavailable if only time was lacking.
func (d *Database) Wait(ctx context.Context) error {
	for {
		_, err := d.Get(ctx)
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

// retryRefused is how long a database rests that a person has to do something about.
const retryRefused = 10 * time.Second

// Keep tries to open the database until it is open or ctx ends, whatever the reason.
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

// close waits for an attempt that runs, and ends all connections.
func (d *Database) close(ctx context.Context) {
	d.mu.Lock()
	d.closed = true
	attempt := d.attempt
	d.mu.Unlock()
	if attempt != nil {
		<-attempt
	}
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
