package dbcontroller

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/program/process"
	serverapp "dbcontroller.dev/internal/program/server/app"
)

// Options are the settings of a Server. Only ConfigFile is required.
type Options struct {
	// ConfigFile is the path of the configuration, as for --config.
	ConfigFile string
	// ID names this server. It must be unique among running servers. Empty: generated.
	ID string
	// Logger gets all lines. The lines of the audit, whose attribute logger is audit, ignore the level
	// that its handler reports. A handler that checks the level again when it handles a line, as
	// slog.MultiHandler does, drops them: give it the level Info. Nil: slog.Default.
	Logger *slog.Logger
	// Insecure accepts requests of other machines without TLS, or without a login if the
	// configuration has none: anyone who reaches the server may do everything. New warns about it,
	// whatever the program listens on.
	Insecure bool
}

// Server is a service's server inside a program that has a main function, an http.Server and a
// logger of its own. It does what Serve does, except for listening. The Example of New is a whole
// main function.
//
// The order of calls: New, then Run and the http.Server, then Close and http.Server.Shutdown. A Server
// runs once. Its methods are safe for concurrent use.
//
// # Limits
//
// Handler and Operator check and limit each request like Serve does: the caller's login, role and
// origin, parallel requests, the size of bodies, the memory of all requests, and slow clients. An
// http.Server that sends a request through middleware must give it a ResponseWriter with Unwrap, or
// slow clients are not limited.
//
// The program bounds what only its http.Server sees: connections (netutil.LimitListener),
// ReadHeaderTimeout, IdleTimeout, MaxHeaderBytes, and HTTP2. For gRPC without TLS it sets Protocols.
// Its WriteTimeout and ReadTimeout have no effect on these handlers, which set deadlines of their own.
//
// Never serve http.DefaultServeMux: libraries that this package needs register pages for debugging
// there, which no check protects. A listener for the PROXY protocol must take it from a trusted proxy
// only, since its local address decides what counts as this machine.
//
// Service.Flags and Service.Listening have no effect here.
type Server struct {
	process  *process.Process
	app      *serverapp.App
	api      http.Handler
	operator http.Handler
}

// New makes a server. It reads and checks the service, the options, the configuration and the files
// that it names, and returns one line that says what to correct. It opens no connection and starts
// nothing.
func New(s Service, o Options) (*Server, error) {
	if o.ConfigFile == "" {
		return nil, errors.New("dbcontroller.Options: it has no ConfigFile: name the configuration")
	}
	log := o.Logger
	if log == nil {
		log = slog.Default()
	}
	server, err := newServer(s, process.Flags{Config: o.ConfigFile, ID: o.ID, LogLevel: "info", Insecure: o.Insecure}, zaplog.From(log, access.AuditLog), serverapp.Options{})
	if err != nil {
		return nil, err
	}
	if server.api, err = server.app.Handler(); err != nil {
		return nil, err
	}
	if server.operator, err = server.app.Operator(); err != nil {
		return nil, err
	}
	return server, nil
}

// newServer is the common part of New and Serve. log replaces the logger of the flags; nil: that one.
func newServer(s Service, f process.Flags, log *zap.Logger, opts serverapp.Options) (*Server, error) {
	// A broken Service must fail before the server reads a file.
	if err := s.check(); err != nil {
		return nil, err
	}
	p, err := process.Load(f)
	if err != nil {
		return nil, err
	}
	if log != nil {
		p.Log = log
	}
	opts.ID, opts.Insecure = p.ID, f.Insecure
	app, err := serverapp.New(p.Config, s.Server(), opts, p.Log)
	if err != nil {
		return nil, err
	}
	return &Server{process: p, app: app}, nil
}

// connect is the serverapp.Connect of a process.
func (s *Server) connect(ctx context.Context) (coord.Store, func(), error) {
	if err := s.process.Connect(ctx); err != nil {
		return nil, nil, err
	}
	return s.process.Store, s.process.Close, nil
}

// Handler returns the handler of all APIs, and of the routes that Mount adds. Mount it at the root of
// an http.Server, since it answers unknown paths too.
//
// Before Run it refuses calls with the reason NOT_READY, and from the beginning of Close or the end of
// Run on with STOPPING (package refusal). Clients may repeat both calls.
//
// A request over a connection from another machine needs TLS and a login, unless Options.Insecure is
// set. A loopback address or a Unix socket at this end of the connection means this machine; without an
// http.Server, as in tests with httptest.NewRecorder, every request counts as another machine's. A
// client certificate counts if access.tls.clientCA signs it, whatever else the program's TLS trusts.
func (s *Server) Handler() http.Handler { return s.api }

// Operator returns the handler of the pages that Serve has at --operator-listen: /healthz, /readyz,
// /metrics and /usage, and with operator.profiles /debug/pprof/. It makes the same checks as Handler.
// It works before Run and after Close as well: /readyz then states that the server is not ready.
func (s *Server) Operator() http.Handler { return s.operator }

// TLSConfig returns a new TLS configuration with the certificate and the client authorities of the
// section access, which follows their files. It is nil if the configuration has no certificate. With
// access.tls.clientCA, changes to it have no effect, and the http.Server must keep HTTP/2.
func (s *Server) TLSConfig() *tls.Config { return s.app.TLS() }

// Ready returns nil when the server can serve requests. Otherwise the error states the reason. Pages of
// the program may show it to operators only, since it can name databases.
func (s *Server) Ready() error { return s.app.Ready() }

// Run connects to etcd and the databases, joins the deployment, and serves until ctx ends or Close is
// called. It then lets running requests finish, for at most 5 s after the end of ctx, or as long as
// Close allows. It returns nil after that, and an error if the server cannot start or cannot go on.
// A call after Close returns nil at once, and a second call an error.
func (s *Server) Run(ctx context.Context) error { return s.app.Run(ctx, s.connect) }

// Close stops the server in order. It refuses further requests, ends streams, waits until the running
// requests have finished, ends Run, and waits for it. When ctx ends before, Close returns its error and
// Run ends without these requests; http.Server.Close ends them. Close may be called more than once, and
// without Run.
//
// Call Close before http.Server.Shutdown, which would wait for streams.
func (s *Server) Close(ctx context.Context) error { return s.app.Close(ctx) }
