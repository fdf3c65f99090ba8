package dbcontroller

import (
	"context"

	"dbcontroller.dev/internal/access"
)

// Caller identifies the sender of a request.
type Caller struct {
	// Name is unique across all kinds of proof: the SPIFFE id or cert:SUBJECT of a certificate,
	// token:NAME, or oidc:ISSUER:SUBJECT. It is "loopback" or "anonymous" for a caller without proof.
	Name string
	// Proof is certificate, token, oidc, loopback (a local listener without logins) or none (a
	// listener with --insecure).
	Proof string
	// Address is the remote address of the connection.
	Address string
}

// Proven reports whether a certificate, a token or an issuer proves the name.
func (c Caller) Proven() bool {
	return access.Identity{Name: c.Name, Proof: c.Proof}.Proven()
}

// CallerFrom returns the sender of the request with this context. Handlers of all versions see the
// same caller, also if the server translates the request. ok is false outside of a request, and in
// tests that call Service.Handler without a listener.
func CallerFrom(ctx context.Context) (c Caller, ok bool) {
	caller, ok := access.CallerOf(ctx)
	return Caller{Name: caller.Name, Proof: caller.Proof, Address: caller.Address}, ok
}
