package access

import (
	"context"
	"slices"
	"strings"
)

// Identity is who calls, and how that was proven.
type Identity struct {
	// Name is unique over all kinds of proof: spiffe://…, cert:SUBJECT, token:NAME,
	// oidc:ISSUER:SUBJECT, or one of Loopback and Anonymous.
	Name string
	// Proof is for people: certificate, token, oidc, loopback, none.
	Proof string
}

var (
	// Loopback is the caller of a listener of this machine that asks for no proof.
	Loopback = Identity{Name: "loopback", Proof: "loopback"}
	// Anonymous is the caller of a listener that was opened with --insecure.
	Anonymous = Identity{Name: "anonymous", Proof: "none"}
)

// Proven reports whether somebody vouches for the name.
func (i Identity) Proven() bool { return i != (Identity{}) && i != Loopback && i != Anonymous }

// Caller is an identity with what it may do.
type Caller struct {
	Identity
	Roles   []Role
	Address string // where the request came from
}

// May reports whether one of the roles is enough.
func (c Caller) May(least Role) bool {
	return least == Anyone || slices.ContainsFunc(c.Roles, func(r Role) bool { return r.Covers(least) })
}

// has is the roles, for messages.
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

// WithCaller returns a context of a request that a caller makes.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who makes the request of a context; false where no guard has asked.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Role is what an identity may do.
type Role string

const (
	// Anyone may call without saying who it is: probes.
	Anyone Role = "anyone"
	// Application registers itself, asks where the data is and acknowledges holds; at a
	// server it is a client of the service.
	Application Role = "application"
	// Viewer sees everything of a deployment, and changes nothing.
	Viewer Role = "viewer"
	// Operator may do everything.
	Operator Role = "operator"
)

// Roles are those that a configuration can give, the weakest first.
var Roles = []Role{Application, Viewer, Operator}

// Covers reports whether a role is enough where least is wanted. A viewer is no
// application: a registration can hold up a switch.
func (r Role) Covers(least Role) bool {
	return least == Anyone || r == least || r == Operator
}
