// Package door opens listeners: with TLS or on loopback, behind an access.Guard, and with limits
// for clients that are slow, numerous or hostile.
//
// Open refuses a listener that other machines can reach without TLS or without identities. The
// operator can allow it with --insecure, which is logged at each start.
//
// It does not decide which caller may make which call (package access), and does not define the
// limits (package limits). Begin to read at Open and Door.Serve.
//
// It is not for users and may change with any version.
package door

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
)

// Config configures one listener.
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
	cfg      Config
	listener net.Listener
	guard    *access.Guard
	// Warning describes the listener's insecurity for operators; empty: secure.
	Warning string
}

// Open opens a listener, or returns a one-line reason why not.
func Open(cfg Config) (*Door, error) {
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
	l, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; give another address with %s", cfg.What, err, cfg.Flag)
	}
	d := &Door{cfg: cfg, listener: l}
	// The address decides whether the listener is local, so listen first. Nothing is served yet.
	if err := d.lock(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return d, nil
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
	missing := ""
	switch {
	case lock.KeyPair == nil && len(lock.Authenticators) == 0:
		missing = "TLS and identities"
	case lock.KeyPair == nil:
		missing = "TLS"
	case len(lock.Authenticators) == 0:
		missing = "identities"
	}
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
	// Also on loopback: a browser of this machine may run a foreign page.
	names := access.Names{Hosts: lock.Hosts, Origins: lock.Origins}
	if lock.KeyPair != nil {
		names.Certificate = lock.KeyPair.Leaf
	}
	var err error
	d.guard, err = access.NewGuard(access.GuardConfig{
		Authenticators: lock.Authenticators, Policy: lock.Policy, Unproven: unproven, Table: d.cfg.Table, Absent: d.cfg.Absent, Rest: d.cfg.Rest,
		Names: names, Audit: lock.Audit, Log: d.cfg.Log,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", d.cfg.What, err)
	}
	return nil
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
		// The order matters: limits first, then the guard, then memory for known callers only.
		Handler:           d.bounded(d.guard.Handler(d.reserved(h))),
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

// bounded limits the resources of one request and of all requests together.
func (d *Door) bounded(next http.Handler) http.Handler {
	running := make(chan struct{}, d.cfg.Requests)
	budget := memory.NewBudget(d.cfg.BodiesBytes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			busy(w, r)
			return
		}
		rc := http.NewResponseController(w)
		share := budget.Share(limits.ShareBytes)
		defer share.End()
		// Until the caller is known, leave the operators' part free.
		share.Leave(d.cfg.BodiesBytes / limits.OperatorShare)
		r = r.WithContext(memory.With(r.Context(), share)) // handlers take their memory from it, too
		if r.Body != nil && r.Body != http.NoBody {
			b := &body{ReadCloser: http.MaxBytesReader(w, r.Body, d.cfg.BodyBytes), rc: rc, share: share, becomes: d.becomes(encodings(r.Header)...)}
			// An error here and below means that the connection is gone.
			_ = rc.SetReadDeadline(time.Now().Add(d.cfg.BodyTime))
			r.Body = b
		}
		next.ServeHTTP(&patient{ResponseWriter: w, rc: rc, most: d.cfg.WriteTime}, r)
	})
}

// reserved keeps a share of the requests and of their memory for operators. Some calls of viewers
// and applications wait for minutes, and must not lock out an operator. A listener without
// operators needs no such share.
//
// It runs behind the guard. A request may wait there for an issuer, and must not hold memory before
// the guard knows its caller.
func (d *Door) reserved(next http.Handler) http.Handler {
	others := make(chan struct{}, max(1, d.cfg.Requests-d.cfg.Requests/limits.OperatorShare))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := memory.Of(r.Context())
		if c, ok := access.CallerOf(r.Context()); ok && c.May(access.Operator) {
			// An operator may use the reserved part of the memory.
			share.Leave(0)
		} else {
			select {
			case others <- struct{}{}:
				defer func() { <-others }()
			default:
				busy(w, r)
				return
			}
		}
		if n := d.inURL(r); n > 0 && !share.Reserve(n) {
			busy(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// busy refuses a request that exceeds a limit. The client may retry after a second.
func busy(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	refusal.Write(w, r, refusal.New(refusal.Busy, errors.New("too many requests at the same time: try again")))
}

// inURL returns the memory for a request's message in its URL, which Connect uses with GET.
func (d *Door) inURL(r *http.Request) int64 {
	if r.Method != http.MethodGet || r.URL.RawQuery == "" {
		return 0
	}
	query := r.URL.Query() // decoded like Connect, so no other spelling passes
	if !query.Has("message") {
		return 0
	}
	return d.becomes(query["compression"]...)(int64(len(r.URL.RawQuery)))
}

// encodings returns the compressions that a header announces.
func encodings(h http.Header) (all []string) {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		all = append(all, h.Values(name)...)
	}
	return all
}

// gzipRatio is the most bytes that one byte of gzip can expand to: deflate encodes 258 bytes in two
// bits.
const gzipRatio = 1032

// becomes returns a function from the bytes of a message as sent to the memory for it.
func (d *Door) becomes(encodings ...string) func(sent int64) int64 {
	ratio := int64(1)
	for _, e := range encodings {
		switch e {
		case "", "identity":
		case "gzip":
			ratio = max(ratio, gzipRatio)
		default:
			ratio = d.cfg.BodyBytes // unknown: one byte may expand to the maximum
		}
	}
	return func(sent int64) int64 {
		return limits.BodyCopies * max(sent, min(sent*ratio, d.cfg.BodyBytes))
	}
}

// body is a request's body with a deadline and a budget of memory.
type body struct {
	io.ReadCloser
	rc      *http.ResponseController
	share   *memory.Share
	becomes func(sent int64) int64
	sent    int64 // bytes read so far
}

// noRoom is the error for the reader of a body. Connect sends it to the client unchanged.
func noRoom() error {
	return refusal.New(refusal.Busy, errors.New("too many large requests at the same time: try again"))
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	before := b.becomes(b.sent)
	// Reserve before the reader gets the bytes: it decompresses and decodes them at once.
	if b.sent += int64(n); !b.share.Reserve(b.becomes(b.sent) - before) {
		return 0, noRoom()
	}
	if err == io.EOF {
		// The body is complete, so the handler may take its time. After any other error the
		// deadline stays, because the server still reads the rest.
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// patient writes to a slow reader, with a deadline for each write.
type patient struct {
	http.ResponseWriter
	rc   *http.ResponseController
	most time.Duration
}

func (p *patient) Write(b []byte) (int, error) {
	defer p.until()()
	return p.ResponseWriter.Write(b)
}

func (p *patient) Flush() { _ = p.FlushError() }

// FlushError implements the optional interface of http.ResponseController.
func (p *patient) FlushError() error {
	defer p.until()()
	return p.rc.Flush()
}

// Unwrap gives http.ResponseController access to the connection.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// until sets the write deadline and returns a function that removes it. Between writes, a stream
// may be silent for any time.
func (p *patient) until() func() {
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.most))
	return func() { _ = p.rc.SetWriteDeadline(time.Time{}) }
}
