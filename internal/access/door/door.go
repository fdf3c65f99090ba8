// Package door opens listeners: with TLS or on loopback, behind an access.Guard, and with limits
// for clients that are slow, numerous or hostile.
//
// Open refuses a listener that other machines can reach without TLS or without identities. The
// operator can allow it with --insecure, which is logged at each start.
//
// It does not decide which caller may make which call (package access), and does not define the
// limits (package limits). Begin to read at Open and Door.Serve. Handler has the same checks for a
// program that has listeners of its own.
//
// It is not for users and may change with any version.
package door

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/limits"
)

// Config configures one listener, or one Handler. A Handler uses neither Address and Flag nor
// Connections and HeaderTime.
type Config struct {
	What    string // name in messages, such as "API port"
	Address string // host:port
	Flag    string // flag for another address, in messages
	Lock    *Lock
	Table   access.Table
	// Absent answers paths without a row; see access.GuardConfig.
	Absent func(path string) *connect.Error
	// Rest is the role for paths without a row; see access.GuardConfig.
	Rest access.Role
	// Pages are the origins of pages of this program at other controllers, such as
	// https://controller-2:7090. They may call this listener and read its answers.
	Pages []string
	// Unencrypted2 also accepts HTTP/2 without TLS, for gRPC.
	Unencrypted2 bool
	Connections  int   // maximum at a time; more wait. 0: limits.Connections
	Requests     int   // maximum at a time; more are refused. 0: limits.Requests
	BodyBytes    int64 // maximum of a request as sent. 0: limits.RequestBytes
	BodiesBytes  int64 // maximum of all running requests and their handlers. 0: limits.RequestsBytes
	// HeaderTime, BodyTime and WriteTime replace the limits of the same names. Only tests set them.
	HeaderTime, BodyTime, WriteTime time.Duration
	Log                             *zap.Logger
}

// Lock holds the settings that all listeners of a process share. The zero value requires loopback.
type Lock struct {
	Authenticators []access.Authenticator
	Policy         access.Policy
	KeyPair        *access.KeyPair     // nil: no TLS
	Clients        *access.Authorities // sign client certificates; nil: no client certificates
	Hosts, Origins []string
	Insecure       bool
	Audit          *access.Audit
}

// Door is an open listener. Call either Serve or Close.
type Door struct {
	filter
	listener net.Listener
	// Warning describes the listener's insecurity for operators; empty: secure.
	Warning string
}

// Open opens a listener, or returns a one-line reason why not.
func Open(cfg Config) (*Door, error) {
	cfg = cfg.complete()
	l, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; give another address with %s", cfg.What, err, cfg.Flag)
	}
	d := &Door{filter: filter{cfg: cfg}, listener: l}
	// The address decides whether the listener is local, so listen first. Nothing is served yet.
	if err := d.lock(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return d, nil
}

// complete replaces zero values by their meaning.
func (cfg Config) complete() Config {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Lock == nil {
		cfg.Lock = &Lock{}
	}
	cfg.Connections = or(cfg.Connections, limits.Connections)
	cfg.Requests = or(cfg.Requests, limits.Requests)
	cfg.BodyBytes = or(cfg.BodyBytes, int64(limits.RequestBytes))
	cfg.BodiesBytes = or(cfg.BodiesBytes, int64(limits.RequestsBytes))
	cfg.HeaderTime = or(cfg.HeaderTime, limits.HeaderTime)
	cfg.BodyTime = or(cfg.BodyTime, limits.BodyTime)
	cfg.WriteTime = or(cfg.WriteTime, limits.WriteTime)
	return cfg
}

func or[T int | int64 | time.Duration](n, otherwise T) T {
	if n == 0 {
		return otherwise
	}
	return n
}

// lock sets up the guard, and refuses an insecure listener that other machines can reach.
func (d *Door) lock() error {
	lock := d.cfg.Lock
	loopback := d.listener.Addr().(*net.TCPAddr).IP.IsLoopback()
	missing := lock.missing(lock.KeyPair != nil)
	// On loopback only local users can connect, so proofs are optional.
	unproven := access.Loopback
	if missing != "" && !loopback {
		if !lock.Insecure {
			return fmt.Errorf("%s: %s can be reached from other machines and has no %s: configure access in the configuration file (docs/security.md), listen on 127.0.0.1, or give --insecure",
				d.cfg.What, d.cfg.Address, missing)
		}
		unproven = access.Anonymous
		d.Warning = fmt.Sprintf("%s at %s has no %s (--insecure): anyone who reaches it may do everything", d.cfg.What, d.listener.Addr(), missing)
		if len(lock.Authenticators) > 0 {
			d.Warning = fmt.Sprintf("%s at %s has no TLS (--insecure): anyone on the network path can read and replay tokens", d.cfg.What, d.listener.Addr())
		}
		d.cfg.Log.Warn("insecure", zap.String("what", d.Warning))
	}
	return d.guarded(access.GuardConfig{Authenticators: lock.Authenticators, Unproven: unproven})
}

// missing names the protections that connections from other machines lack. It is empty if they are
// secure.
func (l *Lock) missing(encrypted bool) string {
	switch {
	case !encrypted && len(l.Authenticators) == 0:
		return "TLS and identities"
	case !encrypted:
		return "TLS"
	case len(l.Authenticators) == 0:
		return "identities"
	}
	return ""
}

// Addr returns the listener's address.
func (d *Door) Addr() string { return d.listener.Addr().String() }

// Warnings returns Warning as a list, empty if there is none. A nil Door has none.
func (d *Door) Warnings() []string {
	if d == nil || d.Warning == "" {
		return nil
	}
	return []string{d.Warning}
}

// Close closes a door that does not serve.
func (d *Door) Close() error { return d.listener.Close() }

// Serve serves until ctx ends, then lets running requests finish for limits.StopTime. It returns
// ctx's error after a clean end.
func (d *Door) Serve(ctx context.Context, h http.Handler) error {
	s := &http.Server{
		Handler:           d.handler(h),
		ReadHeaderTimeout: d.cfg.HeaderTime,
		IdleTimeout:       limits.IdleTime,
		MaxHeaderBytes:    limits.HeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: limits.Streams, WriteByteTimeout: limits.WriteTime},
		ErrorLog:          zap.NewStdLog(d.cfg.Log.Named("http").WithOptions(zap.IncreaseLevel(zap.ErrorLevel))),
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	// Limit before TLS, so that waiting connections cost no handshake.
	l := netutil.LimitListener(d.listener, d.cfg.Connections)
	if d.cfg.Lock.KeyPair != nil {
		s.Protocols.SetHTTP2(true)
		s.TLSConfig = access.ServerTLS(d.cfg.Lock.KeyPair, d.cfg.Lock.Clients)
		l = tls.NewListener(l, s.TLSConfig)
	} else if d.cfg.Unencrypted2 {
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// ctx has ended, but running requests still get their time.
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.StopTime)
	defer cancel()
	if err := s.Shutdown(stop); err != nil {
		return errors.Join(fmt.Errorf("shut down %s: %w", l.Addr(), err), s.Close())
	}
	<-served //nolint:errcheck // the server was shut down
	return ctx.Err()
}
