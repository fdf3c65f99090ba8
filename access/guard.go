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

	"dbcontroller.dev/refusal"
)

// GuardConfig is what a listener asks of those who call it.
type GuardConfig struct {
	// Authenticators are asked in order. With none, everybody is Unproven.
	Authenticators []Authenticator
	Policy         Policy
	// Unproven is who calls where nobody has to prove anything, and may do everything.
	// Ignored where there are Authenticators.
	Unproven Identity
	Table    Table
	// Absent is what callers that are known are told of a path without a row: nil, also what it
	// returns, is that nothing is there.
	Absent func(path string) *connect.Error
	// Rest is the role that may call paths without a row. Zero: nobody may.
	Rest  Role
	Names Names
	Audit *Audit      // nil: none
	Log   *zap.Logger // nil: none
}

// Guard lets requests through to those who may make them.
type Guard struct {
	cfg    GuardConfig
	errors *connect.ErrorWriter
	origin *http.CrossOriginProtection
}

// NewGuard makes a guard.
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

// Handler is next for those who may call it. It has read nothing of the body.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := g.admit(r)
		if err != nil {
			g.refuse(w, r, caller, err)
			return
		}
		defer g.panicked(r, caller)
		next.ServeHTTP(w, r.WithContext(WithCaller(r.Context(), caller)))
	})
}

// panicked reports a handler's panic and ends the connection: what the call has done is not known,
// so that no answer would be true. net/http would only write it to a log of its own.
func (g *Guard) panicked(r *http.Request, caller Caller) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		g.cfg.Log.Error("a handler panicked", zap.String("path", clip(r.URL.Path)), zap.String("identity", caller.Name),
			zap.String("panic", fmt.Sprint(v)), zap.ByteString("stack", debug.Stack()))
		g.cfg.Audit.panicked(r, caller)
	}
	panic(http.ErrAbortHandler)
}

// admit finds out who calls, and whether it may. Its errors are a *connect.Error.
func (g *Guard) admit(r *http.Request) (Caller, error) {
	caller := Caller{Address: r.RemoteAddr}
	if err := g.cfg.Names.check(r); err != nil {
		return caller, connect.NewError(connect.CodePermissionDenied, err)
	}
	if g.origin.Check(r) != nil {
		return caller, connect.NewError(connect.CodePermissionDenied, errForeign)
	}
	row, known := g.cfg.Table.Row(r.URL.Path)
	id, err := g.identify(r.Context(), r)
	switch {
	case err == nil:
		caller.Identity = id
		caller.Roles = g.cfg.Policy.RolesOf(id.Name)
		if !id.Proven() {
			caller.Roles = []Role{Operator}
		}
	case known && row.Least == Anyone:
		return caller, nil // who asks so is not asked back, whatever it brings
	default:
		return caller, connect.NewError(connect.CodeUnauthenticated, err)
	}
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

// mayCall is nil, or what a caller lacks.
func mayCall(c Caller, path string, row Row) error {
	if c.May(row.Least) {
		return nil
	}
	return connect.NewError(connect.CodePermissionDenied,
		fmt.Errorf("%s wants the role %s, and %s has %s", callName(path), row.Least, c.Name, c.has()))
}

// callName is Switch of /dbcontroller.v1.DeploymentService/Switch, and else the path.
func callName(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 && strings.Contains(path[:i], ".") {
		return path[i+1:]
	}
	return path
}

// identify asks the authenticators. Its errors are for the caller.
func (g *Guard) identify(ctx context.Context, r *http.Request) (Identity, error) {
	if len(g.cfg.Authenticators) == 0 {
		if g.cfg.Unproven == (Identity{}) {
			return Identity{}, errors.New("nobody can be known here")
		}
		return g.cfg.Unproven, nil
	}
	// A token is brought on purpose; a certificate may come by itself.
	_, brought := bearer(r)
	var wants []string
	for _, a := range g.cfg.Authenticators {
		if _, certificate := a.(Certificates); certificate && brought {
			continue
		}
		id, err := a.Authenticate(ctx, r)
		var unproven *UnprovenError
		switch {
		case err == nil:
			return id, nil
		case errors.As(err, &unproven):
			return Identity{}, err
		case !errors.Is(err, ErrNoProof):
			g.cfg.Log.Error("identity cannot be proven", zap.Error(err))
			return Identity{}, errors.New("who calls cannot be found out now: try again")
		}
		wants = append(wants, a.Wants())
	}
	switch {
	case brought:
		return Identity{}, errors.New("the bearer token is not known here")
	case len(r.Header.Values("Authorization")) > 0:
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
	// What was not read of the body is not read now: the connection ends.
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	if reason, _ := refusal.Of(err); reason != "" {
		var absent *connect.Error
		errors.As(err, &absent)
		refusal.Write(w, r, absent)
		return
	}
	// What is not there is told in plain text, so that no client takes this for its API.
	if g.errors.IsSupported(r) && r.Method == http.MethodPost && code != connect.CodeUnimplemented {
		_ = g.errors.Write(w, r, err) // the caller has gone, then
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
