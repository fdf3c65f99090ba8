package access

import (
	"context"
	"slices"
	"strings"
)

// Identity is the caller's name and its proof. The zero value is an unknown caller.
type Identity struct {
	// Name is unique across all kinds of proof: spiffe://…, cert:SUBJECT, token:NAME,
	// oidc:ISSUER:SUBJECT, or the name of Loopback or Anonymous.
	Name string
	// Proof is a word for operators: certificate, token, oidc, loopback, none.
	Proof string
}

// ProofCertificate is the Proof of callers with a client certificate.
const ProofCertificate = "certificate"

var (
	// Loopback is the caller of a local listener that asks for no proof.
	Loopback = Identity{Name: "loopback", Proof: "loopback"}
	// Anonymous is the caller of a listener that was opened with --insecure.
	Anonymous = Identity{Name: "anonymous", Proof: "none"}
)

// Proven reports whether a certificate, a token or an issuer proves the name.
func (i Identity) Proven() bool { return i != (Identity{}) && i != Loopback && i != Anonymous }

// Caller is an identity with its roles.
type Caller struct {
	Identity
	Roles   []Role
	Address string // remote address of the request
}

// May reports whether one of the caller's roles is sufficient.
func (c Caller) May(least Role) bool {
	return least == Anyone || slices.ContainsFunc(c.Roles, func(r Role) bool { return r.Covers(least) })
}

// has describes the roles for messages.
func (c Caller) has() string {
	if len(c.Roles) == 0 {
		return "no role"
	}
	names := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		names[i] = string(r)
	}
	return "the role " + strings.Join(names, " and ")
}

type callerKey struct{}

// WithCaller returns a context with the caller of a request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of the context's request; false if no guard has run.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Role is a set of permissions.
type Role string

const (
	// Anyone needs no identity. Probes use it.
	Anyone Role = "anyone"
	// Application may register itself, ask where the data is, and acknowledge holds. At a server it
	// is a client of the service.
	Application Role = "application"
	// Viewer may read everything about a deployment, and change nothing.
	Viewer Role = "viewer"
	// Operator may do everything.
	Operator Role = "operator"
)

// Roles lists the roles that a configuration can grant, weakest first.
var Roles = []Role{Application, Viewer, Operator}

// Covers reports whether role r suffices where least is needed. Viewer does not cover Application,
// because a registration can delay a switch.
func (r Role) Covers(least Role) bool {
	return least == Anyone || r == least || r == Operator
}
