package databases

import (
	"context"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/base/watchedfile"
)

const (
	// lookAtLogin is the interval at which the files of a login are checked for changes.
	lookAtLogin = 2 * time.Second
	// formerLogin is the time that connections of the previous login stay open. Running commands
	// can finish in it. Longer change streams break and resume at their position.
	formerLogin = 2 * time.Minute
	// loginPatience is the time that a call with a refused login waits for a new login.
	loginPatience = 5 * time.Second
)

// former is a way with an earlier login.
type former struct {
	way   *way
	since time.Time
}

// renew reopens the database whenever its login changes, until the Set is closed. If the new login
// does not work yet, the previous one stays: files and server change one after the other.
func (d *Database) renew(login *watchedfile.Value[*config.DB], used *config.DB) {
	defer close(d.renewing)
	look := time.NewTicker(lookAtLogin)
	defer look.Stop()
	var before []former
	said := ""
	for {
		select {
		case <-d.life.Done():
			for _, f := range before {
				d.end(d.life, f.way)
			}
			return
		case <-look.C:
		case <-d.look:
		}
		// Open transactions of a former login hold locks. The server no longer accepts that login
		// to end them.
		for _, f := range before {
			d.endTransactions(d.life, f.way)
		}
		// Close one former login at a time, oldest first.
		if len(before) > 0 && time.Since(before[0].since) > formerLogin {
			d.end(d.life, before[0].way)
			before = before[1:]
		}
		now := login.Get()
		if now == used {
			said = ""
			continue
		}
		w, err := d.open(d.life, *now)
		if err != nil {
			// Log each reason once: the check runs every two seconds.
			if text := err.Error(); text != said && d.life.Err() == nil {
				said = text
				d.how.Log.Warn("the login has changed and cannot be used yet: the one before stays", zap.String("version", d.db.Version), zap.Error(err))
			}
			continue
		}
		// Before the swap, so that no number of connections comes twice.
		d.former.Add(d.opened.Load().Connections() + 1)
		// New commands use the new login from here on. Running ones keep the former connections.
		before = append(before, former{d.opened.Swap(w), time.Now()})
		used, said = now, ""
		d.how.Log.Info("the database is used with another login", zap.String("version", d.db.Version))
	}
}

// end closes a way, even if ctx has ended.
func (d *Database) end(ctx context.Context, w *way) {
	if err := w.Close(context.WithoutCancel(ctx)); err != nil {
		d.how.Log.Debug("close database", zap.Error(err))
	}
}

// endTransactions uses the present login to end transactions of a login that the server no longer
// accepts.
func (d *Database) endTransactions(ctx context.Context, former *way) {
	now := d.opened.Load()
	if now == nil || now == former {
		return
	}
	if err := now.backend.EndTransactions(ctx, former.backend); err != nil {
		d.how.Log.Debug("a transaction stays open", zap.String("version", d.db.Version), zap.Error(err))
	}
}

// relogin waits up to loginPatience for a login that differs from the refused one. It reports
// whether there is one. Files and server change one after the other.
func (d *Database) relogin(ctx context.Context, refused *way) bool {
	d.mu.Lock()
	followed := d.renewing != nil
	d.mu.Unlock()
	if !followed {
		// The login is not read from files, so no other one will come.
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	// A transaction of the refused login may hold the lock that the repeated call needs.
	defer d.endTransactions(ctx, refused)
	for d.opened.Load() == refused {
		select {
		// A full channel means that a check is requested already.
		case d.look <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
	return true
}
