package door

import (
	"fmt"
	"net"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/access"
)

// Handler returns h with the checks and limits of a listener, for a program with an http.Server of
// its own. Checks that Open makes once for a listener are made for each request: a request of another
// machine needs TLS and identities, unless the Lock is insecure. warnings describe the insecurity of
// that for operators.
//
// The program bounds connections, headers and streams itself, since a handler sees none of them.
func Handler(cfg Config, h http.Handler) (handler http.Handler, warnings []string, err error) {
	f := &filter{cfg: cfg.complete()}
	lock := f.cfg.Lock
	authenticators := slices.Clone(lock.Authenticators)
	for i, a := range authenticators {
		// The program may use a TLS configuration of its own, which trusts other authorities.
		if _, ok := a.(access.Certificates); ok {
			authenticators[i] = access.Certificates{Authorities: lock.Clients}
		}
	}
	if err := f.guarded(access.GuardConfig{Authenticators: authenticators, Connection: f.connection}); err != nil {
		return nil, nil, err
	}
	if lock.Insecure {
		warning := f.cfg.What + " accepts requests of other machines without TLS (Insecure): anyone on the network path can read and replay tokens"
		if len(lock.Authenticators) == 0 {
			warning = f.cfg.What + " has no identities (Insecure): anyone who reaches it may do everything"
		}
		warnings = append(warnings, warning)
		f.cfg.Log.Warn("insecure", zap.String("what", warning))
	}
	return f.handler(h), warnings, nil
}

// connection returns the identity of a caller without proof, by the connection that the request came
// on. It returns an error if no request may come on it.
func (f *filter) connection(r *http.Request) (access.Identity, error) {
	// On loopback only local users can connect, so proofs are optional.
	if local(r) {
		return access.Loopback, nil
	}
	if f.cfg.Lock.Insecure {
		return access.Anonymous, nil
	}
	missing := f.cfg.Lock.missing(r.TLS != nil)
	if missing == "" {
		return access.Identity{}, nil
	}
	return access.Identity{}, fmt.Errorf("%s: the request may come from another machine, and there is no %s: configure access (docs/security.md) and TLS, listen on 127.0.0.1, or set Insecure",
		f.cfg.What, missing)
}

// local reports whether the connection of a request ends at an address that only this machine
// reaches. Without an http.Server the address is unknown, so the request counts as foreign.
func local(r *http.Request) bool {
	switch at := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return at.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}
