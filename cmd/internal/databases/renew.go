package databases

import (
	"context"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/watchedfile"
)

const (
	// lookAtLogin is how often the files are asked whether somebody else, or the same one with
	// another password or certificate, logs in.
	lookAtLogin = 2 * time.Second
	// formerLogin is how long the connections of the login before stay open after that. Who
	// has begun on them comes to an end in its time; streams of changes that last longer break,
	// and are opened anew where they were.
	formerLogin = 2 * time.Minute
	// loginPatience is how long a call that the login was refused to waits for another one.
	loginPatience = 5 * time.Second
)

// former is a way whose login is not the present one.
type former struct {
	way   *way
	since time.Time
}

// renew opens the database anew whenever its login has changed, until the Set is closed. One
// that cannot log in yet changes nothing: files and server are changed one after the other.
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
		for _, f := range before {
			d.endTransactions(d.life, f.way)
		}
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
			if text := err.Error(); text != said && d.life.Err() == nil {
				said = text
				d.how.Log.Warn("the login has changed and cannot be used yet: the one before stays", zap.String("version", d.db.Version), zap.Error(err))
			}
			continue
		}
		before = append(before, former{d.opened.Swap(w), time.Now()})
		used, said = now, ""
		d.how.Log.Info("the database is used with another login", zap.String("version", d.db.Version))
	}
}

// end closes a way, whether or not ctx has ended.
func (d *Database) end(ctx context.Context, w *way) {
	if err := w.Close(context.WithoutCancel(ctx)); err != nil {
		d.how.Log.Debug("close database", zap.Error(err))
	}
}

// endTransactions ends, by the login of now, what was left open by one that the server does not
// take any longer.
func (d *Database) endTransactions(ctx context.Context, former *way) {
	now := d.opened.Load()
	if now == nil || now == former {
		return
	}
	if err := now.backend.EndTransactions(ctx, former.backend); err != nil {
		d.how.Log.Debug("a transaction stays open", zap.String("version", d.db.Version), zap.Error(err))
	}
}

// relogin reports whether there is another login than that of a way, and waits a little
// for it: files and server are changed one after the other.
func (d *Database) relogin(ctx context.Context, refused *way) bool {
	d.mu.Lock()
	followed := d.renewing != nil
	d.mu.Unlock()
	if !followed {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	defer d.endTransactions(ctx, refused)
	for d.opened.Load() == refused {
		select {
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
