package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ErrNoProof: the request carries nothing that an Authenticator knows. Ask the next one.
var ErrNoProof = errors.New("no proof of identity")

// UnprovenError says why the proof that a request carries does not count. Its text goes to
// the caller, and holds nothing of the proof.
type UnprovenError struct{ Reason string }

func (e *UnprovenError) Error() string { return e.Reason }

func unproven(format string, args ...any) error {
	return &UnprovenError{fmt.Sprintf(format, args...)}
}

// Authenticator proves who sends a request. It returns ErrNoProof where the request has
// nothing for it, and an UnprovenError where it has something that does not count.
type Authenticator interface {
	Authenticate(ctx context.Context, r *http.Request) (Identity, error)
	// Wants is what a request can bring, for messages.
	Wants() string
}

// Certificates proves identities by client certificates that TLS has verified: the SPIFFE
// id where there is one, and else the subject.
type Certificates struct{}

var _ Authenticator = Certificates{}

func (Certificates) Wants() string { return "a client certificate" }

// Authenticate implements Authenticator. Connections live long: a certificate that has
// expired on one counts no more.
func (Certificates) Authenticate(_ context.Context, r *http.Request) (Identity, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Identity{}, ErrNoProof
	}
	leaf := r.TLS.VerifiedChains[0][0]
	if time.Now().After(leaf.NotAfter) {
		return Identity{}, unproven("the client certificate has expired")
	}
	ids := 0
	for _, u := range leaf.URIs {
		if strings.EqualFold(u.Scheme, "spiffe") {
			ids++
		}
	}
	switch {
	case ids > 1 || ids == 1 && len(leaf.URIs) > 1:
		return Identity{}, unproven("the client certificate has more than one URI; a SPIFFE certificate has one")
	case ids == 1:
		return Identity{Name: leaf.URIs[0].String(), Proof: "certificate"}, nil
	}
	if leaf.Subject.String() == "" {
		return Identity{}, unproven("the client certificate has neither a subject nor a SPIFFE id")
	}
	return Identity{Name: "cert:" + leaf.Subject.String(), Proof: "certificate"}, nil
}

// bearer is the token of a request; false if there is none.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}
