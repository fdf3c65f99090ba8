package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Grant gives a role to identities.
type Grant struct {
	Role Role
	// Identity is a full name, or a prefix of names: spiffe://example.org/ns/shop/*,
	// oidc:cluster:system:serviceaccount:shop:*. The star is the last character and follows a / or
	// a :.
	Identity string
}

// Policy maps identities to roles. It is immutable; the zero value grants nothing.
type Policy struct{ grants []Grant }

// NewPolicy returns a policy of the grants. It returns an error for a pattern that CheckPattern
// refuses.
func NewPolicy(grants []Grant) (Policy, error) {
	for _, g := range grants {
		if err := CheckPattern(g.Identity); err != nil {
			return Policy{}, err
		}
	}
	return Policy{grants: slices.Clone(grants)}, nil
}

// kindsOfName lists the prefixes of provable names. Issuers choose the part after the prefix.
var kindsOfName = []string{"spiffe://", "cert:", "token:", "oidc:"}

// CheckPattern refuses a pattern that matches no identity, or every identity of a kind.
func CheckPattern(p string) error {
	rest := ""
	if !slices.ContainsFunc(kindsOfName, func(kind string) (ok bool) {
		rest, ok = strings.CutPrefix(p, kind)
		return ok
	}) {
		return errors.New("want spiffe://DOMAIN/PATH, cert:SUBJECT, token:NAME or oidc:ISSUER:SUBJECT")
	}
	if strings.ContainsFunc(p, unicode.IsControl) || rest == "" {
		return errors.New("want a name after " + strings.TrimSuffix(p, rest))
	}
	stem, star := strings.CutSuffix(p, "*")
	if strings.Contains(stem, "*") {
		return errors.New("want one * at most, as the last character")
	}
	if !star {
		return nil
	}
	// A grant to every identity of a kind is always a mistake. A pattern must name the domain or
	// the issuer.
	inner := strings.TrimSuffix(rest, "*")
	if inner == "" || !strings.HasSuffix(inner, "/") && !strings.HasSuffix(inner, ":") || strings.Trim(inner, "/:") == "" {
		return fmt.Errorf("want a * only behind a / or a : of a longer name, such as spiffe://example.org/*")
	}
	return nil
}

// RolesOf returns the roles of an identity, each once.
func (p Policy) RolesOf(name string) []Role {
	var roles []Role
	for _, g := range p.grants {
		stem, star := strings.CutSuffix(g.Identity, "*")
		if (g.Identity == name || star && strings.HasPrefix(name, stem) && len(name) > len(stem)) && !slices.Contains(roles, g.Role) {
			roles = append(roles, g.Role)
		}
	}
	return roles
}
