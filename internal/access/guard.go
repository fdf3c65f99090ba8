package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/refusal"
)

// GuardConfig configures the access to a listener.
type GuardConfig struct {
	// Authenticators are asked in order. Without any, every caller is Unproven.
	Authenticators []Authenticator
	Policy         Policy
	// Unproven is the caller of a listener without Authenticators, with every permission. It is
	// ignored if there are Authenticators.
	Unproven Identity
	// Connection replaces Unproven by an identity for each request, for listeners that are not known
	// beforehand. An error refuses the request. Nil: Unproven.
	Connection func(*http.Request) (Identity, error)
	Table      Table
	// Absent returns the answer to a known caller for a path without a row. If it is nil or returns
	// nil, the answer is that nothing exists there.
	Absent func(path string) *connect.Error
	// Rest is the role that may call paths without a row. Zero: such paths are refused.
	Rest  Role
	Names Names
	Audit *Audit      // nil: no audit
	Log   *zap.Logger // nil: no log
}

// Guard admits the requests that the table and the policy allow. It is safe for concurrent use.
type Guard struct {
	cfg    GuardConfig
	errors *connect.ErrorWriter
	origin *http.CrossOriginProtection
}

// NewGuard returns a guard. It returns an error for an invalid origin.
func NewGuard(cfg GuardConfig) (*Guard, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	origin := http.NewCrossOriginProtection()
	for _, o := range cfg.Names.Origins {
		if err := origin.AddTrustedOrigin(o); err != nil {
			return nil, err
		}
	}
	return &Guard{cfg: cfg, errors: connect.NewErrorWriter(), origin: origin}, nil
}

// Handler returns a handler that calls next for admitted requests. It reads nothing of the body.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := g.admit(r)
		if err != nil {
			g.refuse(w, r, caller, err)
			return
		}
		defer g.panicked(r, caller)
		// Calls inside the process recover panics in their own goroutines.
		ctx := inprocess.WithReporter(r.Context(), func(p *inprocess.PanicError) { g.report(r, caller, p.Value, p.Stack) })
		ctx, end := g.rechecked(ctx, w, r, caller)
		defer end()
		next.ServeHTTP(w, r.WithContext(WithCaller(ctx, caller)))
	})
}

// panicked reports a handler's panic and ends the connection. The effect of the call is unknown, so
// any answer could be false. net/http would write the panic only to its own log.
func (g *Guard) panicked(r *http.Request, caller Caller) {
	v := recover()
	if v == nil {
		return
	}
	// ErrAbortHandler is a deliberate end, not a fault.
	if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		g.report(r, caller, v, debug.Stack())
	}
	panic(http.ErrAbortHandler)
}

// report writes a panic to the log and to the audit.
func (g *Guard) report(r *http.Request, caller Caller, value any, stack []byte) {
	g.cfg.Log.Error("a handler panicked", zap.String("path", clip(r.URL.Path)), zap.String("identity", caller.Name),
		zap.String("panic", fmt.Sprint(value)), zap.ByteString("stack", stack))
	g.cfg.Audit.panicked(r, caller)
}

// admit identifies the caller and checks its permission. Its errors are *connect.Error.
func (g *Guard) admit(r *http.Request) (Caller, error) {
	caller := Caller{Address: r.RemoteAddr}
	// Refuse foreign pages first: a browser may attach a valid client certificate to their
	// requests.
	if err := g.cfg.Names.check(r); err != nil {
		return caller, connect.NewError(connect.CodePermissionDenied, err)
	}
	if g.origin.Check(r) != nil {
		return caller, connect.NewError(connect.CodePermissionDenied, errForeign)
	}
	unproven := g.cfg.Unproven
	if g.cfg.Connection != nil {
		var err error
		if unproven, err = g.cfg.Connection(r); err != nil {
			return caller, connect.NewError(connect.CodePermissionDenied, err)
		}
	}
	row, known := g.cfg.Table.Row(r.URL.Path)
	id, err := g.identify(r.Context(), r, unproven)
	switch {
	case err == nil:
		caller.Identity = id
		caller.Roles = g.cfg.Policy.RolesOf(id.Name)
		// Unproven is configured only for listeners that trust every caller.
		if !id.Proven() {
			caller.Roles = []Role{Operator}
		}
	case known && row.Least == Anyone:
		return caller, nil // needs no identity, so a bad proof does not matter
	default:
		return caller, connect.NewError(connect.CodeUnauthenticated, err)
	}
	// Only identified callers learn whether a path exists.
	if !known {
		if g.cfg.Absent != nil {
			if absent := g.cfg.Absent(r.URL.Path); absent != nil {
				return caller, absent
			}
		}
		if g.cfg.Rest != "" {
			return caller, mayCall(caller, r.URL.Path, Row{Least: g.cfg.Rest})
		}
		return caller, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("nothing at %s can be called here", clip(r.URL.Path)))
	}
	return caller, mayCall(caller, r.URL.Path, row)
}

// mayCall returns nil, or the role that the caller lacks.
func mayCall(c Caller, path string, row Row) error {
	if c.May(row.Least) {
		return nil
	}
	return connect.NewError(connect.CodePermissionDenied,
		fmt.Errorf("%s wants the role %s, and %s has %s", callName(path), row.Least, c.Name, c.has()))
}

// callName returns Switch for /dbcontroller.v1.DeploymentService/Switch, and otherwise the path.
func callName(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 && strings.Contains(path[:i], ".") {
		return path[i+1:]
	}
	return path
}

// identify asks the authenticators. The caller receives its errors.
func (g *Guard) identify(ctx context.Context, r *http.Request, unproven Identity) (Identity, error) {
	if len(g.cfg.Authenticators) == 0 {
		if unproven == (Identity{}) {
			return Identity{}, errors.New("nobody can be known here")
		}
		return unproven, nil
	}
	// A caller sends a token on purpose, but a certificate may be attached automatically. So the
	// token decides.
	_, brought := bearer(r)
	var wants []string
	for _, a := range g.cfg.Authenticators {
		if _, certificate := a.(Certificates); certificate && brought {
			continue
		}
		id, err := a.Authenticate(ctx, r)
		var invalid *UnprovenError
		switch {
		case err == nil:
			return id, nil
		case errors.As(err, &invalid):
			return Identity{}, err
		// The log has the details; the caller gets none of them.
		case !errors.Is(err, ErrNoProof):
			g.cfg.Log.Error("identity cannot be proven", zap.Error(err))
			return Identity{}, errUnavailable
		}
		wants = append(wants, a.Wants())
	}
	switch {
	case brought:
		return Identity{}, errors.New("the bearer token is not known here")
	case len(r.Header.Values(authorization)) > 0:
		return Identity{}, errors.New("the Authorization header is not one 'Bearer TOKEN'")
	}
	return Identity{}, fmt.Errorf("who calls is not proven: bring %s", strings.Join(wants, ", or "))
}

// refuse answers in the caller's protocol.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, c Caller, err error) {
	g.cfg.Audit.refused(r, c, err)
	code := connect.CodeOf(err)
	if code == connect.CodeUnauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	// The rest of the body stays unread, so the connection must end.
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	// An answer with a reason has a form of its own, for programs.
	if reason, _ := refusal.Of(err); reason != "" {
		var absent *connect.Error
		errors.As(err, &absent)
		refusal.Write(w, r, absent)
		return
	}
	// A missing path is answered in plain text, so that no client takes it for its API.
	if g.errors.IsSupported(r) && r.Method == http.MethodPost && code != connect.CodeUnimplemented {
		_ = g.errors.Write(w, r, err) // it fails only if the caller has gone
		return
	}
	status := http.StatusForbidden
	switch code {
	case connect.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case connect.CodeUnimplemented:
		status = http.StatusNotFound
	}
	var ce *connect.Error
	errors.As(err, &ce)
	http.Error(w, ce.Message(), status)
}
