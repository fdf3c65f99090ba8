package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ErrNoProof means that the request carries no proof for this Authenticator. The Guard asks the
// next one.
var ErrNoProof = errors.New("no proof of identity")

// UnprovenError means that the request carries an invalid proof. The caller receives its text,
// which contains nothing of the proof.
type UnprovenError struct {
	Reason string
	// Expired means that the proof was valid until its time was over.
	Expired bool
}

func (e *UnprovenError) Error() string { return e.Reason }

func unproven(format string, args ...any) error {
	return &UnprovenError{Reason: fmt.Sprintf(format, args...)}
}

func expired(what string) error { return &UnprovenError{Reason: what + " has expired", Expired: true} }

// Authenticator proves the sender of a request. It returns ErrNoProof if the request carries
// nothing for it, and an *UnprovenError for an invalid proof. Any other error is logged and hidden
// from the caller.
type Authenticator interface {
	Authenticate(ctx context.Context, r *http.Request) (Identity, error)
	// Wants describes the accepted proof, for messages.
	Wants() string
}

// Certificates proves identities by client certificates that TLS has verified. The identity is the
// SPIFFE id, or the subject if there is none.
type Certificates struct {
	// Authorities verify the certificate of each request once more, for listeners whose TLS may
	// trust other authorities. Nil: what TLS has verified is enough.
	Authorities *Authorities
}

var _ Authenticator = Certificates{}

func (Certificates) Wants() string { return "a client certificate" }

// Authenticate implements Authenticator. It checks the expiry itself, because a connection may
// outlive its certificate.
func (c Certificates) Authenticate(_ context.Context, r *http.Request) (Identity, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Identity{}, ErrNoProof
	}
	// Every chain begins with the client's own certificate.
	leaf := r.TLS.VerifiedChains[0][0]
	if c.Authorities != nil && !c.Authorities.signed(r.TLS.PeerCertificates) {
		return Identity{}, unproven("the client certificate is not signed by an authority that is known here")
	}
	if time.Now().After(leaf.NotAfter) {
		return Identity{}, expired("the client certificate")
	}
	ids := 0
	for _, u := range leaf.URIs {
		if strings.EqualFold(u.Scheme, "spiffe") {
			ids++
		}
	}
	switch {
	// With several URIs it would be a guess which one the authority meant.
	case ids > 1 || ids == 1 && len(leaf.URIs) > 1:
		return Identity{}, unproven("the client certificate has more than one URI; a SPIFFE certificate has one")
	case ids == 1:
		return Identity{Name: leaf.URIs[0].String(), Proof: ProofCertificate}, nil
	}
	if leaf.Subject.String() == "" {
		return Identity{}, unproven("the client certificate has neither a subject nor a SPIFFE id")
	}
	return Identity{Name: "cert:" + leaf.Subject.String(), Proof: ProofCertificate}, nil
}

const authorization = "Authorization"

// bearer returns the token of a request; false if there is none.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values(authorization)
	// Two headers are ambiguous: a proxy may have checked the other one.
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}
