package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Grant gives identities a role.
type Grant struct {
	Role Role
	// Identity is a whole name, or the beginning of names: spiffe://example.org/ns/shop/*,
	// oidc:cluster:system:serviceaccount:shop:*. The star stands last, behind a / or a :.
	Identity string
}

// Policy gives roles to identities.
type Policy struct{ grants []Grant }

// NewPolicy checks the grants.
func NewPolicy(grants []Grant) (Policy, error) {
	for _, g := range grants {
		if err := CheckPattern(g.Identity); err != nil {
			return Policy{}, err
		}
	}
	return Policy{grants: slices.Clone(grants)}, nil
}

// kindsOfName begin the names of identities that can be proven, each with what is before
// its first part that an issuer chooses.
var kindsOfName = []string{"spiffe://", "cert:", "token:", "oidc:"}

// CheckPattern refuses what no identity can be called.
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
	// Everybody of a kind is never meant: a pattern names the domain or the issuer at least.
	inner := strings.TrimSuffix(rest, "*")
	if inner == "" || !strings.HasSuffix(inner, "/") && !strings.HasSuffix(inner, ":") || strings.Trim(inner, "/:") == "" {
		return fmt.Errorf("want a * only behind a / or a : of a longer name, such as spiffe://example.org/*")
	}
	return nil
}

// RolesOf are the roles that an identity has, each once.
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
