package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/proxy/login"
	"dbcontroller.dev/internal/proxy/upstream"
)

// User is a user of the proxy.
type User struct {
	Name     string
	Database string // that the application names as authSource
	Verifier string // file
	Login    Login  // with which the proxy serves the user at every cluster, so that the cluster decides what it may do
}

// Login is a user of the clusters.
type Login = upstream.Login

// user is a user of the proxy while it runs. Its identity is the pointer.
type user struct {
	*login.User
	as *upstream.Login

	complained atomic.Int64 // when it was last logged that a cluster refuses as, in Unix seconds
}

// accounts are the users of a proxy.
type accounts struct {
	known  *login.Users
	of     map[*login.User]*user
	guard  login.Guard
	failed atomic.Int64 // logins
	lines  lines
}

// openUsers returns nil if the configuration has no users.
func openUsers(cfg Config) (*accounts, error) {
	if len(cfg.Users) == 0 {
		return nil, nil
	}
	var list []login.Account
	for _, u := range cfg.Users {
		list = append(list, login.Account{Database: u.Database, Name: u.Name, File: u.Verifier})
	}
	known, err := login.Open(list, zaplog.From(cfg.Log, ""))
	if err != nil {
		return nil, err
	}
	out := &accounts{known: known, of: map[*login.User]*user{}}
	for i, u := range known.All() {
		as := cfg.Users[i].Login
		out.of[u] = &user{User: u, as: &as}
	}
	return out, nil
}

// logins returns the logins of all users.
func (a *accounts) logins() (out []*upstream.Login) {
	if a == nil {
		return nil
	}
	for _, u := range a.known.All() {
		out = append(out, a.of[u].as)
	}
	return out
}

// errNobody is a fault of the proxy: with users, no command is sent with the proxy's own login.
var errNobody = errors.New("a command without a user")

// loginOf returns the login for the commands of a user; nil: the one of the connection string.
func (p *Proxy) loginOf(u *user) (*upstream.Login, error) {
	switch {
	case u != nil:
		return u.as, nil
	case p.users != nil:
		return nil, errNobody
	}
	return nil, nil
}

// stranger reports whether a client must log in before it may do anything else.
func (p *Proxy) stranger(cl *peer) bool { return p.users != nil && cl.user.Load() == nil }

// complainEvery is the least time between two lines about the same refused login.
const complainEvery = 10 // seconds

// noteRefused logs that a cluster refuses the login of a user, which only an operator can mend.
func (p *Proxy) noteRefused(u *user, err error) {
	if u == nil || !errors.Is(err, upstream.ErrLogin) {
		return
	}
	now := time.Now().Unix()
	if last := u.complained.Load(); now-last >= complainEvery && u.complained.CompareAndSwap(last, now) {
		p.log.Error("a user cannot be served: correct its login in the configuration, or in the database", slog.String("user", u.String()), slog.Any("error", err))
	}
}

// tryLogins uses each login once in each cluster, so that an operator learns at the start which of them are
// refused. The other users can be served all the same.
func (p *Proxy) tryLogins(ctx context.Context) {
	if p.users == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(8)
	for _, u := range p.users.of {
		for _, cluster := range p.clusters() {
			g.Go(func() error {
				return p.faults.run("a try of a login", func() {
					conn, err := cluster.Conn(ctx, u.as, upstream.Want{Mode: upstream.PrimaryPreferred})
					if err != nil {
						p.noteRefused(u, err)
						return
					}
					conn.Release()
				})
			})
		}
	}
	_ = g.Wait() // a fault is logged
}

// lines bounds the lines of the log that strangers cause.
type lines struct {
	mu      sync.Mutex
	second  int64
	written int
	left    int // since the last line
}

// mostLines is the number of lines within a second.
const mostLines = 10

// next reports whether a line may be written, and how many were left out before it.
func (l *lines) next(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := now.Unix(); s != l.second {
		l.second, l.written = s, 0
	}
	if l.written >= mostLines {
		l.left++
		return 0, false
	}
	l.written++
	left, l.left = l.left, 0
	return left, true
}
